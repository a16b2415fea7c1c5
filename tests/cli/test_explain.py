"""--explain: every choice told in lines on stderr, or as values in --json; the text untouched."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from llmcli.cli.explain_table import ASCII, UNICODE, step_lines
from llmcli.generation.explain import Candidate, Stage, Step
from tests.cli.conftest import Invoke
from tests.puppet import make_puppet

STORY = ["generate", "-m", "stories260k", "Once upon a time", "-n", "4"]
SAMPLED = [*STORY, "--temperature", "1.2", "--top-k", "40", "--top-p", "0.6", "--seed", "3"]
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")

MODEL = Stage("model", (Candidate(0, 2.0, 0.5), Candidate(1, 1.0, 0.25)), 9, 1.25)
CUT = Stage(
    "top-k", (Candidate(0, 2.0, 1.0),), 1, 0.0, (Candidate(1, 1.0, 0.25), Candidate(2, 0.5, 0.2)), 8
)
STEP = Step((MODEL, CUT), 0, (0.125,))


def lines(step: Step = STEP, *, width: int = 60, marks: Any = ASCII) -> list[str]:
    return [line.text for line in step_lines(3, step, "abc".__getitem__, width=width, marks=marks)]


def told(invoke: Invoke, *args: str) -> dict[str, Any]:
    result = invoke(*args, "--json", "--explain")
    assert (result.code, result.err) == (0, "")
    value: dict[str, Any] = json.loads(result.out)
    return value


def test_a_block_of_lines() -> None:
    assert lines() == [
        "3  'a'  rank 1  drawn at 0.1250",
        "              model   top-k",
        "  > 'a'      0.5000  1.0000  ########################",
        "    'b'      0.2500     cut",
        "    entropy   1.250   0.000",
        "    left          9       1",
        "  top-k cut 8: 'b' 0.2500 'c' 0.2000 ...",
    ]


def test_a_narrow_terminal_gets_the_stages_in_turn() -> None:
    narrow = lines(width=26)
    assert [line.split() for line in narrow if "model" in line or "top-k" in line][:2] == [
        ["model"],
        ["top-k"],
    ]
    assert all(len(line) <= 26 for line in narrow[1:])
    # Even one column is not lost where nothing fits.
    assert "  > 'a'      0.5000" in lines(width=1)


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (Step((MODEL,), 0, guess=0), "guess kept"),
        (Step((MODEL,), 0, guess=1), "guess 'b' replaced"),
        (Step((MODEL,), 0, (0.5, 0.25)), "drawn at 0.5000, 0.2500"),
    ],
)
def test_the_headline(step: Step, expected: str) -> None:
    assert expected in lines(step)[0]


def test_what_is_not_known_is_not_called_cut() -> None:
    step = Step((Stage("model", (Candidate(0, 2.0, 0.5),), 9, 1.0),), 0, guess=2)
    assert [line for line in lines(step) if "'c'" in line][1] == "    'c'           -"


def test_bars_are_in_eighths() -> None:
    (bar,) = [line for line in lines(marks=UNICODE) if ">" in line]
    assert bar.endswith("  " + "█" * 24)
    stage = Stage("model", (Candidate(0, 0.0, 0.13),), 1, 1.0)
    assert lines(Step((stage,), 0), marks=UNICODE)[2].endswith("  ███▏")


@pytest.mark.parametrize("strategy", ["greedy", "beam", "contrastive", "dola", "prompt-lookup"])
def test_every_strategy(invoke: Invoke, strategy: str) -> None:
    answer = told(invoke, *STORY, "--strategy", strategy)
    assert answer["ids"] == [step["id"] for step in answer["explain"]]
    for step, logprob in zip(answer["explain"], answer["logprobs"], strict=True):
        model = step["stages"][0]
        assert model["name"] == "model"
        assert 2.718281828**logprob == pytest.approx(model["chosen"]["prob"], rel=1e-4)
        assert len(model["top"]) == 5
        assert (step["beam"] is not None) == (strategy == "beam")


def test_json_says_who_was_cut(invoke: Invoke) -> None:
    answer = told(invoke, *SAMPLED, "--explain-top", "3")
    plain = json.loads(invoke(*SAMPLED, "--json").out)
    assert answer["ids"] == plain["ids"]
    assert "explain" not in plain
    for step in answer["explain"]:
        stages = {stage["name"]: stage for stage in step["stages"]}
        assert list(stages) == ["model", "temperature", "top-k", "top-p"]
        assert stages["top-k"]["num_cut"] == 512 - 40
        assert stages["top-k"]["left"] == 40
        assert stages["top-p"]["num_cut"] == 40 - stages["top-p"]["left"]
        assert all(len(stage["top"]) <= 3 for stage in stages.values())
        (draw,) = step["draws"]
        assert 0 <= draw < 1
        assert stages["top-p"]["chosen"]["prob"] > 0


def test_the_text_is_untouched(invoke: Invoke) -> None:
    plain, explained = invoke(*SAMPLED), invoke(*SAMPLED, "--explain")
    assert explained.out == plain.out
    assert plain.err == ""
    heads = [line for line in explained.err.splitlines() if line[0] != " "]
    assert [head.split()[0] for head in heads] == ["1", "2", "3", "4"]


@pytest.mark.parametrize(
    ("env", "colour", "bars"),
    [
        ({}, True, True),
        ({"NO_COLOR": "1"}, False, True),
        ({"TERM": "dumb"}, False, False),
        ({"COLUMNS": "40"}, True, True),
    ],
)
def test_terminals(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch, env: dict[str, str], colour: bool, bars: bool
) -> None:
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    err = invoke(*SAMPLED, "--explain", errors_terminal=True).err
    assert ("\x1b[32m  > " in err) == colour
    assert ("█" in err) == bars
    if "COLUMNS" in env:
        plain = re.sub(r"\x1b\[[0-9]*m", "", err)
        assert max(map(cell_len, plain.splitlines())) <= 40


def test_a_terminal_of_another_encoding_gets_ascii(invoke: Invoke) -> None:
    result = invoke(*STORY, "--explain", errors_terminal=True, encoding="latin-1")
    assert b"####" in result.err_bytes
    assert b"?" not in result.err_bytes


def test_odd_tokens_are_escaped(invoke: Invoke, tmp_path: Path) -> None:
    script = ["\x1b", "[bold]", "\n", "界" * 40, b"\xff", "[/x]"]
    model = str(make_puppet(tmp_path / "model", script).folder)
    err = invoke("generate", "-m", model, "hi", "--explain", errors_terminal=True).err
    text = re.sub(r"\x1b\[(1|32|0)m", "", err)
    assert not CONTROL.search(text)
    for shown in ("'\\x1b'", "'[bold]'", "'\\n'", "'<0xFF>'", "'[/x]'", "'<|end|>'"):
        assert shown in text
    assert max(map(cell_len, text.splitlines())) <= 80


def test_nothing_generated(invoke: Invoke) -> None:
    result = invoke(*STORY[:-1], "0", "--explain")
    assert (result.code, result.err) == (0, "nothing to explain: there is no new token\n")
    assert told(invoke, *STORY[:-1], "0")["explain"] == []


def test_an_end_at_once_is_explained(invoke: Invoke, tmp_path: Path) -> None:
    model = str(make_puppet(tmp_path / "model", []).folder)
    answer = told(invoke, "generate", "-m", model, "hi")
    assert answer["text"] == ""
    assert [step["token"] for step in answer["explain"]] == ["<|end|>"]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--explain-top", "3"], "--explain-top has no effect without --explain"),
        (["--explain", "--explain-top", "0"], "--explain-top is 0; it must be at least 1"),
        (["--explain", "--explain-top", "x"], "--explain-top is 'x'; it must be a whole number"),
    ],
)
def test_what_makes_no_sense_is_refused(invoke: Invoke, args: list[str], message: str) -> None:
    result = invoke(*STORY, *args)
    assert result.code == 2
    assert message in result.err
    assert "hint:" in result.err
