"""Where the prompt comes from: argument, --file, standard input, in every mixture."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Invoke
from tests.cli.drive import Child, Result
from tests.puppet import make_puppet


@pytest.fixture
def model(tmp_path: Path) -> str:
    return str(make_puppet(tmp_path / "model", ["ok"], bos="<s>").folder)


def given(result: Result) -> str:
    assert result.code == 0, result.err
    prompt: str = json.loads(result.out)["prompt"]
    return prompt


@pytest.mark.parametrize(
    ("args", "stdin", "prompt"),
    [
        (["one"], None, "one"),
        (["-"], b"two\n", "two"),
        ([], b"two", "two"),
        (["one"], b"two\n", "one\ntwo"),
        (["one"], b"", "one"),
        (["--file", "f"], None, "three"),
        (["--file", "f"], b"two", "three\ntwo"),
        (["one", "--file", "f"], b"two", "one\nthree\ntwo"),
        (["one", "--file", "-"], b"two", "one\ntwo"),
        (["-", "--file", "f"], b"two", "three\ntwo"),
        ([], b"", ""),
        ([], b"\n", ""),
        ([], b"a\n\n", "a\n"),
        ([], b"a\r\nb\r\n", "a\r\nb"),
        ([], b"\xef\xbb\xbfa", "a"),
        ([], b"a\0b", "a\0b"),
        (["--", "-5 degrees"], None, "-5 degrees"),
        (["- item"], None, "- item"),
        (["[bold]x[/bold] :smile:"], None, "[bold]x[/bold] :smile:"),
        (["caf\udcc3\udca9"], None, "café"),
    ],
)
def test_sources(
    invoke: Invoke, model: str, args: list[str], stdin: bytes | None, prompt: str
) -> None:
    Path("f").write_text("three\n", encoding="utf-8")
    if args == ["- item"]:
        args = ["--", *args]
    assert given(invoke("generate", "-m", model, "--json", *args, stdin=stdin)) == prompt


@pytest.mark.parametrize(
    ("args", "stdin", "told"),
    [
        ([], None, "no prompt was given"),
        (["-", "--file", "-"], b"x", "standard input was asked for twice"),
        ([], b"a\xff", "standard input is not UTF-8: byte 0xff at offset 1"),
        (["a\udcff"], None, "the prompt is not UTF-8: byte 0xff at offset 1"),
        (["x", "--stop", "\udcff"], None, "--stop is not UTF-8: byte 0xff at offset 0"),
        (["x", "--system", "\udcff"], None, "--system is not UTF-8: byte 0xff at offset 0"),
        (["--file", "latin"], None, "--file latin is not UTF-8: byte 0xe9 at offset 3"),
        (["--file", "utf16"], None, "--file utf16 is not UTF-8: byte 0xff at offset 0"),
        (["--file", "nowhere"], None, "--file nowhere cannot be read: No such file or directory"),
        (["--file", "."], None, "--file . cannot be read: Is a directory"),
        (["--file", "[x]"], None, "--file [x] cannot be read: No such file or directory"),
    ],
)
def test_what_is_no_prompt(
    invoke: Invoke, model: str, args: list[str], stdin: bytes | None, told: str
) -> None:
    Path("latin").write_bytes(b"caf\xe9")
    Path("utf16").write_bytes("hi".encode("utf-16"))
    result = invoke("generate", "-m", model, *args, stdin=stdin)
    assert result.code == 2
    assert result.out == ""
    assert result.err.startswith(f"error: {told}\n\nhint: ")
    assert ("UTF-16" in result.err) == (args == ["--file", "utf16"])


def test_a_prompt_that_cannot_be_used_loads_nothing(invoke: Invoke) -> None:
    result = invoke("generate", "-m", "no-such-model", "--file", "nowhere")
    assert "nowhere cannot be read" in result.err


@pytest.mark.parametrize("stdin", ["pipe", "null", "terminal", "closed"])
def test_kinds_of_standard_input(model: str, stdin: str) -> None:
    args = ["generate", "-m", model, "one", "--json"]
    with Child(args, stdin=stdin, stdout="pipe", stderr="pipe") as child:
        if stdin == "pipe":
            child.send(b"two\n")
            child.end_input()
        code = child.wait()
        assert (code, child.err) == (0, b"")
        assert json.loads(child.out)["prompt"] == ("one\ntwo" if stdin == "pipe" else "one")


def test_closed_standard_input_cannot_be_asked_for(model: str) -> None:
    with Child(["generate", "-m", model, "-"], stdin="closed", stderr="pipe") as child:
        assert child.wait() == 2
        assert child.err.startswith(b"error: standard input is closed\n\nhint: ")


def test_a_prompt_is_typed_at_a_terminal(model: str) -> None:
    with Child(["generate", "-m", model, "-", "--echo"], stdin="terminal") as child:
        child.wait_for(b"Ctrl-D")
        child.type(b"typed\n\x04")
        assert child.wait() == 0
        assert child.seen.endswith(b"typedok\r\n")
