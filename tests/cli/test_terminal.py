"""What reaches a terminal, and what a pipe: control codes, markup, colours, width (G4, G5, G6)."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from safetensors.torch import load_file, save_file

from llmcli.cli import progress
from tests.cli.conftest import Invoke
from tests.puppet import Script, make_puppet

# What may stand in a text that is shown on a terminal: no control code but newline and tab.
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def say(folder: Path, script: Script, **how: Any) -> str:
    return str(make_puppet(folder / "model", script, **how).folder)


@pytest.mark.parametrize(
    ("script", "shown"),
    [
        # OSC 52, which writes to the clipboard, over four tokens.
        (["\x1b", "]", "52;c;aGk=", "\x07"], "␛]52;c;aGk=␇"),
        (["a", "\x9b".encode(), "31mb"], "a\\x9b31mb"),
        (["good", "\r", "evil"], "good␍evil"),
        (["a\r", "\nb"], "a\nb"),
        (["a\r\nb"], "a\nb"),
        (["end\r"], "end␍"),
        (["ab\x08\x08", "\x7f", "\x00"], "ab␈␈␡␀"),
        (["a\tb\n", "c"], "a\tb\nc"),
        (["\x1b[31mred\x1b[0m"], "␛[31mred␛[0m"),
    ],
)
def test_control_codes(invoke: Invoke, tmp_path: Path, script: Script, shown: str) -> None:
    args = ["generate", "-m", say(tmp_path, script), "hi"]
    result = invoke(*args, terminal=True)
    assert result.out == shown + "\n"
    assert not CONTROL.search(result.out)
    said = "".join(piece if isinstance(piece, str) else piece.decode() for piece in script)
    # A pipe gets the model's own bytes, and so does a terminal on request.
    assert invoke(*args).out == said + "\n"
    assert invoke(*args, "--raw-output", terminal=True).out == said + "\n"


VERBATIM = ["[/INST]", "[bold]", "x[/bold]", " a[0]", " :smile:", " [link=x]", " \\[", " 'a' 1.5"]


def test_brackets_are_verbatim(invoke: Invoke, tmp_path: Path) -> None:
    args = ["generate", "-m", say(tmp_path, VERBATIM), "[bold]:smile:[/x]", "--echo"]
    expected = "[bold]:smile:[/x]" + "".join(VERBATIM) + "\n"
    assert invoke(*args).out == expected
    assert invoke(*args, terminal=True, errors_terminal=True).out == expected


def test_reports_are_verbatim_and_safe(invoke: Invoke, tmp_path: Path) -> None:
    folder = tmp_path / "[red]x[/red] \x1b]52;c;x\x07"
    model = say(folder, ["\x1b", "[/INST]", ":smile:"])
    args = ["generate", "-m", model, "hi", "-v", "--logprobs", "2"]
    err = invoke(*args, errors_terminal=True).err
    assert "[red]x[/red] ␛]52;c;x␇" in err
    assert "'[/INST]'" in err
    assert "':smile:'" in err
    assert not CONTROL.search(err)


def test_errors_are_verbatim_and_safe(invoke: Invoke, tmp_path: Path) -> None:
    evil = "[bold]x[/bold] \x1b]0;owned\x07"
    model = say(tmp_path, ["a"])
    tensors = load_file(f"{model}/model.safetensors")
    save_file({**tensors, evil: tensors["model.norm.weight"].clone()}, f"{model}/model.safetensors")
    for args in (
        ["generate", "-m", model, "hi"],
        ["generate", "-m", f"./{evil}", "hi"],
        ["generate", "-m", evil, "hi"],
        ["generate", "-m", model, "--file", evil],
        ["generate", "-m", model, "hi", "--strategy", evil],
        ["generate", "-m", model, "hi", f"--{evil}"],
        ["generate", "-m", model, "hi", evil],
        [evil],
        ["pull", evil],
        ["convert", evil, "out"],
    ):
        result = invoke(*args, errors_terminal=True)
        assert result.code in (1, 2), args
        text = result.err.replace("\x1b[1;31merror:\x1b[0m", "").replace(
            "\x1b[1;36mhint:\x1b[0m", ""
        )
        assert "[bold]x[/bold]" in text
        assert not CONTROL.search(text)
        assert "Traceback" not in text


def test_the_debug_traceback_is_safe_too(invoke: Invoke) -> None:
    result = invoke("generate", "--file", "a\x1b[31m", "--debug", errors_terminal=True)
    assert "Traceback" in result.err
    assert result.err.count("a␛[31m cannot be read") == 2
    assert "\x1b[31m" not in result.err


@pytest.mark.parametrize(
    ("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb"), ("COLUMNS", "20"), (None, "")]
)
def test_colour(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch, name: str | None, value: str
) -> None:
    if name:
        monkeypatch.setenv(name, value)
    result = invoke("generate", "-m", "./" + "long/" * 30, "hi", errors_terminal=True)
    assert ("\x1b" in result.err) == (name in (None, "COLUMNS"))
    # One line, however narrow the terminal is.
    assert result.err.splitlines()[1] == ""
    piped = invoke("generate", "-m", "./nowhere", "hi")
    assert piped.err.startswith("error: nowhere does not exist\n\nhint: ")


def test_text_is_never_wrapped(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    words = ["word "] * 30 + ["宽字符"] * 10
    result = invoke("generate", "-m", say(tmp_path, words), "hi", terminal=True)
    assert result.out == "".join(words) + "\n"


def test_each_piece_is_flushed_and_nothing_else_is_said(invoke: Invoke, tmp_path: Path) -> None:
    result = invoke("generate", "-m", say(tmp_path, ["Hel", "lo", " there"]), "hi")
    assert result.writes == [b"Hel", b"lo", b" there", b"\n"]
    assert result.err == ""


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1", "cp1252"])
def test_encodings(invoke: Invoke, tmp_path: Path, encoding: str) -> None:
    args = ["generate", "-m", say(tmp_path, ["café ", "🙂".encode(), " ŷ"]), "hi"]
    # A file gets UTF-8 in any locale; a terminal what it can show.
    assert invoke(*args, encoding=encoding).out_bytes.decode("utf-8") == "café 🙂 ŷ\n"
    shown = invoke(*args, terminal=True, encoding=encoding)
    assert shown.code == 0
    assert shown.out_bytes == "café 🙂 ŷ\n".encode(encoding, "replace")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_messages_in_any_encoding(invoke: Invoke, encoding: str) -> None:
    result = invoke("generate", "-m", "./ŷ🙂", "hi", encoding=encoding)
    assert result.err_bytes.startswith(b"error: ?? does not exist\n")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bars appear at once."""
    monkeypatch.setattr(progress, "_PATIENCE_SECONDS", -1.0)


@pytest.mark.parametrize(
    ("terminal", "name", "value", "drawn", "coloured"),
    [
        (True, "TERM", "xterm", True, True),
        (True, "NO_COLOR", "1", True, False),
        (True, "COLUMNS", "20", True, True),
        (True, "COLUMNS", "0", False, False),
        (True, "TERM", "dumb", False, False),
        (False, "TERM", "xterm", False, False),
    ],
)
@pytest.mark.usefixtures("impatient")
def test_bars(
    invoke: Invoke,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    terminal: bool,
    name: str,
    value: str,
    drawn: bool,
    coloured: bool,
) -> None:
    monkeypatch.setenv(name, value)
    model = say(tmp_path, ["a", "b"], layers=4)
    result = invoke(
        "generate", "-m", model, "x" * 1200, terminal=terminal, errors_terminal=terminal
    )
    assert (result.code, result.out) == (0, "ab\n")
    assert ("loading" in result.err) == drawn
    assert not drawn or "\x1b[?25l" in result.err
    # The cursor comes back, and the bar takes itself away.
    assert result.err.rfind("\x1b[?25h") >= result.err.rfind("\x1b[?25l")
    assert ("\x1b[3" in result.err) == coloured
    if not terminal or value == "dumb":
        assert result.err == ""


@pytest.mark.parametrize("terminal", [True, False])
def test_json_is_json_for_any_text(invoke: Invoke, tmp_path: Path, terminal: bool) -> None:
    script: Script = ["\x1b]0;", "\x9b\x7f".encode(), "é🙂", '\x00\r\n\t"']
    result = invoke("generate", "-m", say(tmp_path, script), "hi", "--json", terminal=terminal)
    assert not CONTROL.search(result.out)
    assert json.loads(result.out)["text"] == '\x1b]0;\x9b\x7fé🙂\x00\r\n\t"'
    assert len(result.writes) >= 1


def test_table_of_models(invoke: Invoke, tmp_path: Path) -> None:
    make_puppet(tmp_path / "home" / "weights" / "宽[red]字", ["a"])
    broken = tmp_path / "home" / "weights" / "broken\n\x1b[31m"
    broken.mkdir()
    (broken / "config.json").write_text("{", encoding="utf-8")
    result = invoke("models", terminal=True)
    lines = result.out.splitlines()
    assert not CONTROL.search(result.out)
    # The columns stand below each other, wide characters counted as such.
    column = cell_len(lines[0][: lines[0].index("FAMILY")])
    named = next(line for line in lines if line.startswith("宽[red]字 "))
    assert cell_len(named[: named.index("llama")]) == column
    assert "not JSON" in next(line for line in lines if line.startswith("broken"))
    assert invoke("models").out == result.out
    rows = json.loads(invoke("models", "--json").out)
    assert {row["name"] for row in rows} >= {"宽[red]字", "stories260k"}
    assert all(set(row) >= {"name", "path", "size_bytes", "family", "source"} for row in rows)
