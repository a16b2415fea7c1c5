"""A person at a terminal: keys, paste, blocks, history, completion, editor, resize, leaving."""

from __future__ import annotations

import fcntl
import json
import signal
import stat
import struct
import termios
from pathlib import Path

import pytest

from tests.cli.chatting import halts
from tests.cli.chatting.talking import (
    ALT_ENTER,
    CTRL_C,
    CTRL_D,
    ENTER,
    TAB,
    TEMPLATE,
    UP,
    Person,
    plain,
    puppet,
)

SCRIPTS = {"": ["ok"], "1": ["one ", "two"], "2": ["three"]}
HINT = "(Ctrl-C once more, or Ctrl-D, leaves)"


@pytest.fixture
def model(tmp_path: Path) -> str:
    return puppet(tmp_path, SCRIPTS)


def said() -> list[str]:
    """What the user said in every conversation that is kept."""
    # Two that begin within a second differ by an ending that a sort by name would put first.
    files = sorted(Path("../home/chats").glob("*.jsonl"), key=lambda one: one.stat().st_mtime_ns)
    lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    return [line["user"] for line in lines if "user" in line]


def test_a_short_talk(model: str) -> None:
    with Person(model) as person:
        person.sees("model (llama), context 2048 tokens; /help", "saved in ", ".jsonl")
        person.prompted()
        person.says("say 1", "one two", "kept 0, prefilled 6, new 3", "ctx ")
        person.says("say 2", "three")
        person.leaves()
    assert said() == ["say 1", "say 2"]


def test_the_context_that_was_asked_for(model: str) -> None:
    with Person(model, "--max-context", "300") as person:
        person.prompted("context 300 tokens")
        person.says("/show", "ctx 0/300 (0%)", "flag")
        person.leaves()


def test_a_template_that_refuses_a_finished_reply(tmp_path: Path) -> None:
    wants = "{% if messages[-1].role != 'user' %}{{ raise_exception('no') }}{% endif %}"
    with Person(puppet(tmp_path, SCRIPTS, chat_template=wants + TEMPLATE)) as person:
        person.prompted()
        person.says("say 1", "one two", "kept 0", "ctx ")
        person.says("say 2", "three")
        assert "error" not in plain(person.child.seen)
        person.leaves()


def test_a_template_that_refuses_everything(model: str) -> None:
    Path("none.jinja").write_text("{{ raise_exception('no') }}")
    with Person(model) as person:
        person.prompted()
        person.says("say 1", "one two")
        person.leaves()
    with Person(model, "--template", "none.jinja", "--resume") as person:
        person.sees("1 turn so far", "<ready>")
        person.types(b"say 2" + ENTER)
        person.sees("refuses this chat: no", "<ready>")
        person.leaves()


def test_a_new_line_in_a_message(model: str) -> None:
    with Person(model) as person:
        person.prompted()
        person.types(b"first" + ALT_ENTER + b"say 1" + ENTER)
        person.prompted("one two")
        person.leaves()
    assert said() == ["first\nsay 1"]


def test_a_block(model: str) -> None:
    with Person(model) as person:
        person.prompted()
        person.types(b'"""' + ENTER + b"/exit" + ENTER + b"say 1" + ENTER + b'"""' + ENTER)
        person.prompted("one two")
        person.leaves()
    assert said() == ["/exit\nsay 1"]


def test_a_paste_is_one_message(model: str) -> None:
    with Person(model) as person:
        person.prompted()
        person.types(b"\x1b[200~two\r\nlines, say 1\x1b[201~")
        person.sees("lines, say 1")
        assert not said()
        person.types(ENTER)
        person.prompted("one two")
        person.leaves()
    assert said() == ["two\nlines, say 1"]


def test_editing_keys(model: str) -> None:
    with Person(model) as person:
        person.prompted()
        # To the beginning, a word typed there, to the end, the last character changed.
        person.types(b"ay 2" + b"\x01s" + b"\x05\x7f1" + ENTER)
        person.prompted("one two")
        person.leaves()
    assert said() == ["say 1"]


def test_history_across_sessions(model: str) -> None:
    with Person(model) as person:
        person.prompted()
        person.types(b"first" + ALT_ENTER + b"say 1" + ENTER)
        person.prompted("one two")
        person.says("say 2", "three")
        person.leaves()
    with Person(model) as person:
        person.prompted()
        # Up through a message of two lines: one press for each of its lines.
        person.types(UP + UP + ENTER)
        person.prompted("one two")
        person.leaves()
    assert said() == ["first\nsay 1", "say 2", "first\nsay 1"]
    file = Path("../home/chat_history")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert file.read_text().splitlines()[0] == '"first\\nsay 1"'


@pytest.mark.parametrize("broken", ["not json\n[1]\n", None])
def test_a_broken_history_costs_only_itself(model: str, broken: str | None) -> None:
    file = Path("../home/chat_history")
    file.parent.mkdir()
    if broken is None:
        file.mkdir()
    else:
        file.write_text(broken)
    with Person(model) as person:
        person.prompted()
        person.says("say 1", "one two")
        person.leaves()


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        (b"/und", "/undo"),
        (b"/set temp", "/set temperature"),
        (b"/set strategy prom", "/set strategy prompt-lookup"),
        (b"/strategy contr", "/strategy contrastive"),
        (b"/goto ma", "/goto main"),
        (b"/read some", "/read something.txt"),
        (b"/cache sh", "/cache show"),
    ],
)
def test_completion(model: str, typed: bytes, completed: str) -> None:
    Path("something.txt").write_text("x")
    with Person(model) as person:
        person.prompted()
        person.types(typed)
        person.sees(typed.decode())
        person.types(TAB)
        person.sees(completed)
        # The key that clears the line works as before.
        person.mark()
        person.types(CTRL_C)
        person.prompted()
        person.leaves()


@pytest.mark.parametrize("typed", ["//und", "say /und", "/und", "/nothing "])
def test_completion_of_nothing(model: str, typed: str) -> None:
    """In a message, after a command that takes nothing, or where it is no command."""
    with Person(model) as person:
        person.prompted()
        person.types(typed.encode() + (b" " if typed == "/und" else b"") + TAB + b"#")
        person.sees("#")
        assert typed in person.new
        person.mark()
        person.types(CTRL_C)
        person.prompted()
        person.leaves()


def test_the_external_editor(model: str, tmp_path: Path) -> None:
    script = tmp_path / "editor"
    script.write_text('#!/bin/sh\nprintf "from the editor\\nsay 1\\n" > "$1"\n')
    script.chmod(0o755)
    with Person(model, env={"VISUAL": str(script), "EDITOR": "false"}) as person:
        person.prompted()
        person.types(b"\x18\x05")
        person.sees("say 1")
        person.types(ENTER)
        person.prompted("one two")
        person.leaves()
    assert said() == ["from the editor\nsay 1"]


def test_an_edit_begins_with_the_old_message(model: str) -> None:
    with Person(model) as person:
        person.prompted()
        person.says("say 1", "one two")
        person.mark()
        person.types(b"/edit 1" + ENTER)
        person.sees("in place of turn 1", "> say 1")
        person.types(b"\x7f2" + ENTER)
        person.prompted("three")
        person.leaves()
    assert said() == ["say 1", "say 2"]


def test_ctrl_c_at_the_prompt(model: str) -> None:
    with Person(model) as person:
        person.prompted()
        person.types(b"half a mess" + CTRL_C)
        person.prompted("half a mess")
        assert HINT not in plain(person.child.seen)
        person.types(CTRL_C)
        person.prompted(HINT)
        # A message in between, and it is a first press again.
        person.says("say 1", "one two")
        person.mark()
        person.types(CTRL_C)
        person.prompted(HINT)
        person.leaves(CTRL_C, 130)
    assert said() == ["say 1"]


def test_a_signal_at_the_prompt(model: str) -> None:
    with Person(model) as person:
        person.prompted()
        person.child.interrupt()
        person.prompted(HINT)
        person.mark()
        person.child.interrupt()
        assert person.child.wait() == 130
        assert person.child.terminal_restored


@pytest.mark.parametrize("keys", [CTRL_D, b"/exit" + ENTER])
def test_leaving(model: str, keys: bytes) -> None:
    with Person(model) as person:
        person.prompted()
        person.leaves(keys)


@pytest.mark.parametrize(
    ("keys", "replies"),
    [
        (CTRL_D, ["one two"]),
        (b"say 2\n" + CTRL_D, ["one two", "three"]),
        (b"say 2\nsay 1\n" + CTRL_D, ["one two", "three", "one two"]),
    ],
)
def test_typed_ahead_and_ctrl_d_leaves_after_it(
    model: str, keys: bytes, replies: list[str]
) -> None:
    with Person(model, setup=halts.until_keys_wait) as person:
        person.prompted()
        person.types(b"say 1" + ENTER)
        person.sees("PAUSED")
        person.leaves(keys)
        assert said() == ["say 1", "say 2", "say 1"][: len(replies)]
        person.sees(*replies)


def test_a_null_at_an_empty_prompt_does_not_leave(model: str) -> None:
    with Person(model) as person:
        person.prompted()
        person.types(b"\x00")
        person.says("say 1", "one two")
        person.leaves()


def test_sigterm_restores_the_terminal(model: str) -> None:
    with Person(model) as person:
        person.prompted()
        person.says("say 1", "one two")
        person.child.signal(signal.SIGTERM)
        assert person.child.wait() == 128 + signal.SIGTERM
        assert person.child.terminal_restored
    assert said() == ["say 1"]


def test_a_resize(model: str) -> None:
    with Person(model) as person:
        person.prompted()
        person.types(b"say ")
        person.sees("say ")
        for columns in (40, 12, 1, 100):
            size = struct.pack("HHHH", 24, columns, 0, 0)
            fcntl.ioctl(person.child.master, termios.TIOCSWINSZ, size)
            person.mark()
            person.child.signal(signal.SIGWINCH)
            person.child.wait_until(lambda: len(person.new) > 0)
        person.mark()
        person.types(b"1" + ENTER)
        person.prompted("one two")
        person.leaves()
    assert said() == ["say 1"]


@pytest.mark.parametrize("env", [{"TERM": "dumb"}, {"COLUMNS": "20"}])
def test_dumb_and_narrow_terminals(model: str, env: dict[str, str]) -> None:
    with Person(model, env=env, edits=False) as person:
        person.prompted()
        person.says("say 1", "one two", "kept 0, prefilled 6")
        person.mark()
        person.types(b'"""' + ENTER)
        person.sees(". ")
        person.types(b"say 2" + ENTER + b'"""' + ENTER)
        person.prompted("three")
        person.mark()
        person.types(CTRL_C)
        person.prompted(HINT)
        person.leaves(CTRL_C, 130)
        if env.get("TERM") == "dumb":
            assert b"\x1b" not in person.child.seen
    assert said() == ["say 1", "say 2"]


def test_no_colour(model: str) -> None:
    with Person(model, env={"NO_COLOR": "1"}) as person:
        person.prompted()
        person.says("say 1", "one two")
        person.mark()
        person.types(b"/nothing" + ENTER)
        person.prompted("error: ")
        person.leaves()
        assert b"38;5" not in person.child.seen
        assert b"[1;31m" not in person.child.seen


def test_replies_go_to_a_file_and_the_prompt_to_the_terminal(model: str) -> None:
    with Person(model, stdout="pipe") as person:
        person.prompted()
        person.says("say 1", "kept 0")
        person.leaves()
        assert person.child.out == b"one two\n"


def test_without_stderr_the_prompt_is_on_stdout(model: str) -> None:
    with Person(model, stderr="pipe") as person:
        person.prompted()
        person.says("say 1", "one two")
        person.leaves()
        assert person.child.err == b""


def test_a_reply_cannot_drive_the_terminal(tmp_path: Path) -> None:
    """G4, and its brackets are no markup (G5)."""
    model = puppet(tmp_path, ["\x1b", "]", "52;c;aGk=", "\x07", "[/INST]", "\x9b".encode(), "2J"])
    with Person(model, "--markdown") as person:
        person.prompted()
        person.says("x", "␛]52;c;aGk=␇[/INST]\\x9b2J")
        person.leaves()
        assert b"\x1b]" not in person.child.seen
