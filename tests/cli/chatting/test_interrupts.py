"""Ctrl-C at every stage of a chat: the reply kept as far as it came, the chat alive (G2)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli import pauses
from tests.cli.chatting import halts
from tests.cli.chatting.talking import CTRL_C, ENTER, Person, plain, puppet
from tests.cli.drive import Child

EMOJI = "🙂".encode()
SCRIPTS = {"": ["one ", "two ", "three"], "1": ["a", EMOJI, "b"]}


def kept() -> list[tuple[str, str, str]]:
    """Message, reply and ending of every turn on disk."""
    files = sorted(Path("../home/chats").glob("*.jsonl"), key=lambda one: one.stat().st_mtime_ns)
    lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    return [(one["user"], one["reply"], one["ended"]) for one in lines if "reply" in one]


@pytest.mark.parametrize("presses", [CTRL_C, CTRL_C * 2])
@pytest.mark.parametrize(
    ("halt", "message", "reply"),
    [
        (halts.in_prefill, "hi", None),
        (halts.before_the_third_token, "hi", "one two "),
        # Two of four bytes of a character are held back; one replacement stands for each run.
        (halts.before_the_fourth_token, "say 1", "a\ufffd"),
    ],
)
def test_in_a_reply(
    tmp_path: Path, halt: Callable[[], None], message: str, reply: str | None, presses: bytes
) -> None:
    with Person(puppet(tmp_path, SCRIPTS), setup=halt) as person:
        person.prompted()
        person.types(message.encode() + ENTER)
        person.sees("PAUSED")
        person.types(presses)
        told = "the message is not kept" if reply is None else "kept as far as it came"
        person.prompted(told)
        assert kept() == ([] if reply is None else [(message, reply, "cut")])
        person.says("hi", "one two three")
        person.leaves()
    assert kept()[-1] == ("hi", "one two three", "stop")
    assert len(kept()) == (1 if reply is None else 2)


def test_a_cut_reply_is_part_of_the_history(tmp_path: Path) -> None:
    with Person(puppet(tmp_path, SCRIPTS), setup=halts.before_the_third_token) as person:
        person.prompted()
        person.types(b"hi" + ENTER)
        person.sees("PAUSED")
        person.types(CTRL_C)
        person.prompted("kept as far")
        person.says("/tree", "1 hi  (cut)")
        person.says("/undo", "turn 1 'hi' is taken back")
        person.leaves()


def test_in_two_replies(tmp_path: Path) -> None:
    model = puppet(tmp_path, SCRIPTS)
    with Person(model, setup=halts.before_the_third_token_of_two_replies) as person:
        person.prompted()
        for _ in range(2):
            person.types(b"hi" + ENTER)
            person.sees("PAUSED")
            person.types(CTRL_C)
            person.prompted("kept as far")
        person.says("hi", "one two three")
        person.leaves()
    assert [ended for *_, ended in kept()] == ["cut", "cut", "stop"]


def test_while_it_is_saved(tmp_path: Path) -> None:
    with Person(puppet(tmp_path, SCRIPTS), setup=halts.while_it_is_saved) as person:
        person.prompted()
        person.types(b"hi" + ENTER)
        person.sees("one two three", "PAUSED")
        person.types(CTRL_C)
        person.prompted()
        # It waited until the turn was whole, so there was nothing left to stop.
        assert "stopped" not in plain(person.child.seen)
        assert kept() == [("hi", "one two three", "stop")]
        person.says("say 1", "a🙂b")
        person.leaves()


def test_while_another_model_is_loaded(tmp_path: Path) -> None:
    other = puppet(tmp_path / "other", ["another"])
    model = puppet(tmp_path, SCRIPTS)
    with Person(model, setup=halts.while_a_second_model_loads) as person:
        person.prompted()
        person.types(f"/model {other}".encode() + ENTER)
        person.sees("PAUSED")
        person.types(CTRL_C)
        person.prompted("stopped")
        person.says("hi", "one two three")
        person.says(f"/model {other}", "model model (llama)")
        person.says("hi", "another")
        person.leaves()


def test_while_the_weights_are_loaded(tmp_path: Path) -> None:
    with Person(puppet(tmp_path, SCRIPTS), setup=pauses.while_loading) as person:
        person.sees("PAUSED")
        person.leaves(CTRL_C, 130)
        assert b"Traceback" not in person.child.seen


def test_while_torch_is_imported(tmp_path: Path) -> None:
    with Person(puppet(tmp_path, SCRIPTS), setup=pauses.swallowed_while_importing) as person:
        person.sees("PAUSED")
        person.leaves(CTRL_C, 130)


def test_an_error_rolls_the_turn_back(tmp_path: Path) -> None:
    with Person(puppet(tmp_path, SCRIPTS), setup=halts.one_pass_gives_nan) as person:
        person.prompted()
        person.says("say 2", "error: ")
        assert not kept()
        person.says("hi", "one two three")
        person.leaves()
    assert kept() == [("hi", "one two three", "stop")]


def test_a_kill_loses_nothing_that_was_answered(tmp_path: Path) -> None:
    model = puppet(tmp_path, SCRIPTS)
    with Person(model, setup=None) as person:
        person.prompted()
        person.says("hi", "one two three")
        person.child.signal(9)
        assert person.child.wait() == -9
    assert kept() == [("hi", "one two three", "stop")]
    with Person(model, "--resume") as person:
        person.prompted("1 turn so far")
        person.says("/tree", "* 1 hi  [main]")
        person.leaves()


def test_in_a_pipe_it_ends(tmp_path: Path) -> None:
    args = ["chat", "-m", puppet(tmp_path, SCRIPTS)]
    how = {"stdin": "pipe", "stdout": "pipe", "stderr": "pipe"}
    with Child(args, setup=halts.before_the_third_token, **how) as child:
        child.send(b"hi\nhi\n")
        child.wait_for(b"PAUSED", in_="err")
        child.interrupt()
        assert (child.wait(), child.out) == (130, b"one two \n")
    assert kept() == [("hi", "one two ", "cut")]


def test_while_a_line_is_awaited(tmp_path: Path) -> None:
    args = ["chat", "-m", puppet(tmp_path, SCRIPTS)]
    with Child(args, stdin="pipe", stdout="pipe", stderr="pipe") as child:
        child.send(b"hi\n")
        child.wait_for(b"three\n", in_="out")
        child.interrupt()
        assert child.wait() == 130
        assert b"Traceback" not in child.err
