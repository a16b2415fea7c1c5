"""quantize --report: four forms, what is refused before any weight is read, and Ctrl-C."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
import torch

from llmcli.engine.quality import Measured, Quality
from llmcli.spec import PackingKind
from tests.cli.conftest import Invoke

STORY = "Once upon a time there was a little dog. It ran up the hill and saw the sea. " * 12


@pytest.fixture
def text() -> Path:
    path = Path("story.txt")
    path.write_text(STORY)
    return path


def test_both_ways_side_by_side_and_nothing_is_written(invoke: Invoke, text: Path) -> None:
    result = invoke("quantize", "stories260k", "--report", "--text", str(text))
    assert (result.code, result.err) == (0, "")
    lines = result.out.splitlines()
    assert lines[0] == "model: stories260k, 260,032 parameters"
    assert lines[1].startswith("text: story.txt, ")
    assert [line.split("  ")[0] for line in lines[4:7]] == ["as stored (F32)", "int8", "int4"]
    assert sorted(path.name for path in Path().iterdir()) == ["story.txt"]


def test_the_forms_tell_the_same(invoke: Invoke, text: Path) -> None:
    args = ("quantize", "stories260k", "--report", "--text", str(text), "--output")
    told = json.loads(invoke(*args, "json").out)
    stored, int8, int4 = csv.DictReader(io.StringIO(invoke(*args, "csv").out))
    assert float(stored["perplexity"]) == told["stored"]["perplexity"]
    assert stored["kl_mean"] == ""
    for row, packed in zip((int8, int4), told["packed"], strict=True):
        assert {name: str("" if value is None else value) for name, value in packed.items()} == {
            name: row[name] for name in packed
        }
    assert int(int4["tokens"]) == told["text"]["tokens"] > 200
    assert [one["weights"] for one in told["packed"]] == ["int8", "int4"]
    table = invoke(*args, "markdown").out.splitlines()
    assert table[5].count("|") == table[3].count("|") == 10
    assert f"| {told['packed'][0]['kl_mean']:.2e} |" in table[6]


def test_after_writing_what_was_written_is_measured(invoke: Invoke, text: Path) -> None:
    args = ("--bits", "4", "--group-size", "16", "--report", "--text", str(text))
    result = invoke("quantize", "stories260k", "out", *args, "--output", "json")
    assert result.code == 0
    assert result.err.splitlines()[-1] == "wrote out"
    told = json.loads(result.out)
    assert told["folder"] == "out"
    assert [(one["weights"], one["group_size"]) for one in told["packed"]] == [("int4", 16)]
    again = invoke("quantize", "stories260k", *args, "--output", "json")
    assert json.loads(again.out)["packed"] == told["packed"]
    assert again.err == ""


def test_without_a_report_the_folder_is_the_answer(invoke: Invoke) -> None:
    result = invoke("quantize", "stories260k", "out", "--bits", "8")
    assert (result.code, result.out) == (0, "out\n")


def test_few_tokens_are_told_of(invoke: Invoke) -> None:
    result = invoke("quantize", "stories260k", "--report", "--text", "-", stdin=b"a little dog")
    assert result.code == 0
    assert result.err.startswith("warning: only ")
    assert "text: standard input, " in result.out


@pytest.mark.parametrize(
    ("args", "told"),
    [
        ([], "OUT is missing"),
        (["out"], "--bits is missing"),
        (["out", "--report"], "--bits is missing"),
        (["out", "--bits", "8", "--text", "x"], "--text is of no use without --report"),
        (["out", "--bits", "8", "--output", "json"], "--output is of no use without --report"),
        (["--report", "--bits", "8", "--group-size", "4"], "--bits 8 does not read --group-size"),
        (["--report", "--group-size", "7"], "--group-size is 7"),
        (["--report", "--output", "html"], "--output is 'html'; it must be one of table"),
        (["--report", "--text", "nowhere"], "--text nowhere cannot be read: No such file"),
        (["--report", "--text", "empty"], "--text empty is empty"),
        (["--report", "--text", "binary"], "--text binary is not UTF-8: byte 0xff at offset 1"),
    ],
)
def test_mistakes_are_named_before_any_model_is_looked_for(
    invoke: Invoke, args: list[str], told: str
) -> None:
    Path("empty").write_text(" \n")
    Path("binary").write_bytes(b"a\xff\x00")
    result = invoke("quantize", "no/such-model", *args)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith(f"error: {told}")
    assert len(result.err.splitlines()) == 3


def test_threads_are_those_asked_for(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", told.append)
    assert invoke("quantize", "stories260k", "out", "--bits", "8", "--threads", "3").code == 0
    assert told[0] == 3
    result = invoke("quantize", "no/such-model", "out", "--bits", "8", "--threads", "0")
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("error: --threads is 0; it must lie between 1 and 1024")


@pytest.mark.parametrize("args", [["out", "--bits", "4"], ["--report"]])
def test_groups_wider_than_rows_are_refused(invoke: Invoke, args: list[str]) -> None:
    result = invoke("quantize", "stories260k", *args, "--group-size", "66")
    assert (result.code, result.out) == (2, "")
    assert result.err.splitlines()[::2] == [
        "error: --group-size is 66, but the rows of layers.0.attn.q_proj.weight have 64 numbers",
        "hint: give an even number up to 64, or leave it out for 32",
    ]
    assert not Path("out").exists()


def test_groups_as_wide_as_rows_are_taken(invoke: Invoke) -> None:
    args = ("out", "--bits", "4", "--group-size", "64")
    assert invoke("quantize", "stories260k", *args).code == 0


@pytest.mark.parametrize("finished", [0, 1])
def test_ctrl_c_tells_what_was_measured_by_then(
    invoke: Invoke, text: Path, monkeypatch: pytest.MonkeyPatch, finished: int
) -> None:
    whole, kinds = Quality.measure, list[PackingKind]()

    def broken_off(self: Quality, kind: PackingKind, **how: object) -> Measured:
        kinds.append(kind)
        if len(kinds) > finished:
            raise KeyboardInterrupt
        return whole(self, kind, **how)  # type: ignore[arg-type]

    monkeypatch.setattr(Quality, "measure", broken_off)
    args = ("--report", "--text", str(text), "--output", "csv")
    result = invoke("quantize", "stories260k", *args)
    assert result.code == 130
    assert len(result.out.splitlines()) == (3 if finished else 0)
    assert ("broken off: int4 was not measured" in result.err) == bool(finished)
