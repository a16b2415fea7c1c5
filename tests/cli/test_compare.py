"""--compare: one prefill, arms that equal their single runs, and what a screen shows of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from llmcli.cli.side_by_side import Column, laid_out, wrapped
from llmcli.generation.stepper import Stepper
from llmcli.model import Decoder
from tests.cli.conftest import Invoke
from tests.cli.drive import Child
from tests.puppet import make_puppet

STORY = ["generate", "-m", "stories260k", "Once upon a time, Lily saw a", "-n", "20"]
FLAGS = ["--temperature", "0.9", "--seed", "4", "--repetition-penalty", "1.05"]
# Each arm and the command line that asks for the same by itself.
ALONE = {
    "greedy": ["--strategy", "greedy"],
    "sample": ["--strategy", "sample", "--temperature", "0.9", "--seed", "4"],
    "top-p": ["--top-p", "0.9", "--temperature", "0.9", "--seed", "4"],
    "min-p=0.2": ["--min-p", "0.2", "--temperature", "0.9", "--seed", "4"],
    "mirostat": ["--mirostat-tau", "3", "--temperature", "0.9", "--seed", "4"],
    "beam=3": ["--strategy", "beam", "--num-beams", "3"],
    "contrastive": ["--strategy", "contrastive"],
    "dola": ["--strategy", "dola", "--temperature", "0.9", "--seed", "4"],
    "speculative": [
        "--draft-model",
        "stories260k",
        "--temperature",
        "0.9",
        "--seed",
        "4",
    ],
    "prompt-lookup": ["--strategy", "prompt-lookup", "--temperature", "0.9", "--seed", "4"],
}


def told(invoke: Invoke, *args: str) -> dict[str, Any]:
    result = invoke(*args, "--json")
    assert (result.code, result.err) == (0, "")
    value: dict[str, Any] = json.loads(result.out)
    return value


# What edits logits knows no cache: without one, the strategies are enough.
@pytest.mark.parametrize(
    ("cache", "asked"),
    [
        ([], tuple(ALONE)),
        (["--no-kv-cache"], ("greedy", "top-p", "beam=3", "contrastive", "speculative")),
    ],
    ids=["cache", "none"],
)
def test_each_arm_equals_its_own_run(
    invoke: Invoke, cache: list[str], asked: tuple[str, ...]
) -> None:
    draft = ["--draft-model", "stories260k"]
    arms = told(invoke, *STORY, *FLAGS, *draft, *cache, "--compare", ",".join(asked))["arms"]
    assert [arm["arm"] for arm in arms] == list(asked)
    for arm in arms:
        alone = told(invoke, *STORY, *cache, "--repetition-penalty", "1.05", *ALONE[arm["arm"]])
        assert (arm["arm"], arm["ids"]) == (arm["arm"], alone["ids"])
        for key in ("text", "finish_reason", "cache"):
            assert arm[key] == alone[key]
        assert arm["logprobs"] == pytest.approx(alone["logprobs"], abs=1e-4)
        if arm["arm"] not in ("contrastive", "dola"):
            # To the last bit, so that near ties too fall as they do alone.
            assert arm["logprobs"] == alone["logprobs"]
            assert arm["prefilled_tokens"] == 0


def test_the_prompt_is_read_once(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = []
    forward = Decoder.forward

    def counted(self: Decoder, ids: Any, *args: Any, **kwargs: Any) -> Any:
        lengths.append(ids.shape[1])
        return forward(self, ids, *args, **kwargs)

    monkeypatch.setattr(Decoder, "forward", counted)
    answer = told(invoke, *STORY, "--seed", "4", "--compare", "greedy,top-p,min-p,beam")
    assert [length for length in lengths if length > 1] == [len(answer["prompt_ids"])]
    assert len(lengths) > 4 * 15


def test_a_negative_prompt_is_for_the_arms_that_read_it(invoke: Invoke) -> None:
    guided = ["--guidance-scale", "1.8", "--negative-prompt", "The dog was sad"]
    greedy, beam = told(invoke, *STORY, *guided, "--compare", "greedy,beam")["arms"]
    assert greedy["ids"] == told(invoke, *STORY, *guided)["ids"]
    assert beam["ids"] == told(invoke, *STORY, "--strategy", "beam")["ids"]


def test_metrics(invoke: Invoke, tmp_path: Path) -> None:
    script = ["a", "b", "c", "d"]
    model = str(make_puppet(tmp_path / "model", script, ends=False).folder)
    told_ = told(invoke, "generate", "-m", model, "hi", "-n", "10", "--compare", "greedy,beam")
    greedy = told_["arms"][0]
    assert greedy["text"] == "abcdabcdab"
    assert greedy["tokens"] == 10
    assert greedy["distinct_1"] == 0.4
    assert greedy["distinct_2"] == pytest.approx(4 / 9)
    assert greedy["repeats"] == 1.0
    assert greedy["mean_logprob"] == pytest.approx(sum(greedy["logprobs"]) / 10)
    assert greedy["rate"] > 0


def test_a_pipe_gets_them_in_turn_and_verbatim(invoke: Invoke, tmp_path: Path) -> None:
    model = str(make_puppet(tmp_path / "model", ["[bold]", "\x1b", "\n", "x" * 200]).folder)
    result = invoke("generate", "-m", model, "hi", "--compare", "greedy,top-k=3", "--seed", "1")
    assert (result.code, result.err) == (0, "")
    title, line, text, rest, *_ = result.out.split("\n")
    assert (title, line, text, rest) == ("greedy", "------", "[bold]\x1b", "x" * 200)
    assert "\n\ntop-k=3 (top_k 3, seed 1)\n----" in result.out
    assert result.out.count("tokens 5  finish stop  mean logprob ") == 2
    assert result.out.endswith("\n")


@pytest.mark.parametrize(("columns", "beside"), [(130, True), (70, True), (40, False), (1, False)])
def test_terminals(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch, columns: int, beside: bool
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    out = invoke(*STORY, "--compare", "greedy,top-p,beam", "--seed", "1", terminal=True).out
    lines = out.splitlines()
    assert lines[0].startswith("greedy   ") == beside
    assert ("distinct-1    " in out) == beside
    if columns > 30:
        assert max(map(cell_len, lines)) <= columns


def test_control_codes_are_made_visible(invoke: Invoke, tmp_path: Path) -> None:
    model = str(make_puppet(tmp_path / "model", ["\x1b", "]0;owned\x07", "[/x]"]).folder)
    out = invoke("generate", "-m", model, "hi", "--compare", "greedy,beam", terminal=True).out
    assert "\x1b" not in out
    assert "␛]0;owned␇[/x]" in out


def test_nothing_generated(invoke: Invoke) -> None:
    result = invoke(*STORY[:-1], "0", "--compare", "greedy,beam")
    assert result.code == 0
    assert result.out.count("tokens 0  finish length  mean logprob -  distinct-1 -") == 2


def test_an_end_at_once(invoke: Invoke, tmp_path: Path) -> None:
    model = str(make_puppet(tmp_path / "model", []).folder)
    answer = told(invoke, "generate", "-m", model, "hi", "--compare", "greedy,beam,contrastive")
    assert [(arm["text"], arm["tokens"]) for arm in answer["arms"]] == [("", 1)] * 3


def _stumble() -> None:
    """Ctrl-C in the middle of the second arm."""
    import os
    import signal

    feed, seen = Stepper.feed, 0

    def counted(self: Stepper, new: Any) -> Any:
        nonlocal seen
        seen += 1
        if seen == 28:
            os.kill(os.getpid(), signal.SIGINT)
        return feed(self, new)

    Stepper.feed = counted  # type: ignore[method-assign]


@pytest.mark.parametrize("form", [[], ["--json"]], ids=["text", "json"])
def test_an_interruption_keeps_what_is_finished(form: list[str]) -> None:
    args = [*STORY, *form, "--compare", "greedy,top-p,beam", "--seed", "1"]
    with Child(args, stdout="pipe", setup=_stumble) as child:
        assert child.wait() == 130
    out = child.out.decode()
    if form:
        arms = json.loads(out)["arms"]
        assert [(arm["arm"], arm["finish_reason"]) for arm in arms] == [
            ("greedy", "length"), ("top-p", "interrupted"),
        ]  # fmt: skip
        assert 0 < arms[1]["tokens"] < 20
    else:
        assert "tokens 20  finish length" in out
        assert "finish interrupted" in out
        assert "beam" not in out


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--explain"], "--compare does not read --explain"),
        (["--logprobs", "2", "--echo"], "--compare does not read --logprobs, --echo"),
        (["--raw-output"], "--compare does not read --raw-output"),
        (["--num-return", "2"], "--compare does not read --num-return"),
        (["--strategy", "beam"], "--compare and --strategy beam contradict each other"),
        (["--top-p", "0.5"], "no arm of --compare greedy,beam reads --top-p"),
    ],
)
def test_contradictions_are_refused(invoke: Invoke, args: list[str], message: str) -> None:
    result = invoke(*STORY, "--compare", "greedy,beam", *args)
    assert result.code == 2
    assert message in result.err
    assert result.out == ""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", [""]),
        ("one two three", ["one two", "three"]),
        ("abcdefghijkl", ["abcdefgh", "ijkl"]),
        ("a abcdefghijkl", ["a abcdef", "ghijkl"]),
        ("  in\n\n  x", ["  in", "", "  x"]),
        ("界界界界界", ["界界界界", "界"]),
        ("\x1b[31m", ["␛[31m"]),
        ("a\tb", ["a    b"]),
    ],
)
def test_wrapping(text: str, expected: list[str]) -> None:
    assert wrapped(text, 8) == expected


def test_bands_of_columns() -> None:
    columns = [Column(name, f"text {name}", (("n", "1"),)) for name in "abcd"]
    lines = list(laid_out(columns, 70))
    assert lines[0].split() == ["a", "b"]
    assert [line.split() for line in lines].count(["n", "1", "n", "1"]) == 2
    assert all(cell_len(line) <= 70 for line in lines)
