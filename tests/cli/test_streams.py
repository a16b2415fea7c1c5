"""Closed, full and broken streams; real processes, since descriptors are what matters (G6)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli import pauses
from tests.cli.drive import Child
from tests.puppet import make_puppet

TEXT = b"Hello world\n"


@pytest.fixture
def model(tmp_path: Path) -> str:
    return str(make_puppet(tmp_path / "model", ["Hel", "lo", " wor", "ld"]).folder)


def test_on_a_terminal(model: str) -> None:
    with Child(["generate", "-m", model, "hi"], stdin="terminal") as child:
        assert child.wait() == 0
        assert child.seen == b"Hello world\r\n"
        assert child.terminal_restored


@pytest.mark.parametrize("stderr", ["null", "full", "closed", "pipe"])
def test_the_text_does_not_depend_on_stderr(model: str, stderr: str) -> None:
    args = ["generate", "-m", model, "hi", "-v", "--logprobs", "1"]
    with Child(args, stdout="pipe", stderr=stderr) as child:
        assert (child.wait(), child.out) == (0, TEXT)


@pytest.mark.parametrize("flags", [[], ["--json"], ["-v"]])
def test_closed_stdout(model: str, flags: list[str]) -> None:
    args = ["generate", "-m", model, "hi", *flags]
    with Child(args, stdout="closed", stderr="pipe") as child:
        assert child.wait() == 1
        assert child.err.startswith(b"error: standard output is closed, so the answer")
        assert len(child.err.splitlines()) == 3


def test_everything_closed(model: str) -> None:
    args = ["generate", "-m", model, "hi"]
    with Child(args, stdin="closed", stdout="closed", stderr="closed") as child:
        assert child.wait() == 1


@pytest.mark.parametrize("args", [["generate", "hi"], ["generate", "hi", "--json"], ["models"]])
def test_full_stdout(model: str, monkeypatch: pytest.MonkeyPatch, args: list[str]) -> None:
    monkeypatch.setenv("LLMCLI_MODEL", model)
    with Child(args, stdout="full", stderr="pipe", env={"LLMCLI_MODEL": model}) as child:
        assert child.wait() == 1
        assert child.err.startswith(b"error: standard output cannot be written: No space left")
        assert len(child.err.splitlines()) == 3


@pytest.mark.parametrize("args", [["--help"], ["--version"]])
def test_full_stdout_of_a_help(args: list[str]) -> None:
    with Child(args, stdout="full", stderr="pipe") as child:
        assert child.wait() == 1
        assert b"No space left on device" in child.err


@pytest.mark.parametrize(
    "args", [["generate", "-n", "9000", "hi"], ["generate", "hi", "--json", "-n", "9"], ["-h"]]
)
def test_reader_that_leaves(tmp_path: Path, args: list[str]) -> None:
    made = make_puppet(tmp_path / "model", ["ab", "cd"], ends=False, max_positions=9999)
    env = {"LLMCLI_MODEL": str(made.folder)}
    with Child(args, stdout="pipe", stderr="pipe", env=env) as child:
        if args[0] == "generate" and "--json" not in args:
            child.wait_for(b"abcd", in_="out")
        child.stop_reading()
        assert (child.wait(), child.err) == (141, b"")


def test_each_piece_arrives_at_once(tmp_path: Path) -> None:
    made = make_puppet(tmp_path / "model", ["one ", "two ", "three"])
    args = ["generate", "-m", str(made.folder), "hi"]
    with Child(args, stdout="pipe", setup=pauses.before_the_third_token) as child:
        child.wait_for(b"PAUSED")
        child.wait_for(b"one two ", in_="out")
        assert child.alive
        child.interrupt()
        assert child.wait() == 130


def test_slow_reader_of_a_pipe_that_does_not_block(tmp_path: Path) -> None:
    made = make_puppet(tmp_path / "model", ["ab" * 2000, "cd" * 2000], ends=False)
    args = ["generate", "-m", str(made.folder), "hi", "-n", "60"]
    with Child(args, stdout="pipe", stderr="pipe", nonblocking=True) as child:
        child.let_fill()
        assert (child.wait(), child.err) == (0, b"")
        assert child.out == (b"ab" * 2000 + b"cd" * 2000) * 30 + b"\n"


@pytest.mark.parametrize("closed", ["stdin", "stderr"])
def test_no_file_takes_the_number_of_a_closed_stream(model: str, closed: str) -> None:
    # It would be read as the prompt, or overwritten by whatever a library prints.
    streams = {"stdin": "null", "stdout": "pipe", "stderr": "pipe", closed: "closed"}
    args = ["generate", "-m", model, "hi"]
    with Child(args, **streams, setup=pauses.tell_next_descriptor) as child:  # type: ignore[arg-type]
        assert child.wait() == 0
        told = child.out.removesuffix(TEXT).decode()
        assert int(told.removeprefix("next descriptor: ")) > 2
