"""The file's lines: a crash costs the line it struck and no other; all else is named."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmcli.chat.conversation import Conversation
from llmcli.chat.record import as_bytes, parse
from llmcli.errors import StorageError
from tests.chat.talk import begun, said, say


def sample() -> Conversation:
    talk = Conversation(begun(system="sé"))
    say(talk, "a", "b")
    talk.fork("ⅸ branch")
    talk.set_system('T "quoted"\n\u2028 }')
    say(talk, "c\n`{}", "🙂")
    talk.undo()
    return talk


def data_of(talk: Conversation) -> bytes:
    return as_bytes(talk.begun, talk.events)


def test_there_and_back() -> None:
    talk = sample()
    record = parse(data_of(talk), "f")
    assert record.conversation.begun == talk.begun
    assert record.conversation.events == talk.events
    assert record.conversation.tree() == talk.tree()
    assert (record.notice, record.sound) == (None, len(data_of(talk)))


def test_a_kill_at_any_byte() -> None:
    data, talk = data_of(sample()), sample()
    ends = [at for at, byte in enumerate(data) if byte == ord("\n")]
    for length in range(len(data)):
        cut = data[:length]
        if length < ends[0]:
            with pytest.raises(StorageError, match="line 1: "):
                parse(cut, "f")
            continue
        record = parse(cut, "f")
        # A line that lacks its end alone is whole
        whole = sum(end <= length for end in ends) - 1
        assert record.conversation.events == talk.events[:whole]
        torn = length not in (*ends, *(end + 1 for end in ends))
        assert (record.notice is not None) == torn
        assert record.sound == (max(e for e in ends if e < length) + 1 if torn else length)
        # What is zero where it was to be written, after a power failure, is torn too
        if torn:
            assert parse(cut + bytes(9), "f").sound == record.sound


SOUND = [
    '{"llmcli_chat":1,"time":"t","model":"m","system":null}',
    '{"parent":null,"user":"a","reply":"b","ended":"stop","time":"t","model":"m","strategy":"g"}',
    '{"goto":1,"branch":"main","system":null}',
]


def spoiled(line: int, **changes: object) -> list[str]:
    lines = list(SOUND)
    value = {**json.loads(lines[line - 1]), **changes}
    lines[line - 1] = json.dumps({key: item for key, item in value.items() if item is not ...})
    return lines


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([""], "line 1: it is not JSON"),
        (["hello"], "line 1: it is not JSON"),
        (["[]"], "line 1: it holds a list"),
        ([SOUND[1]], "line 1: it is not the first line of a conversation"),
        (spoiled(1, llmcli_chat=2), "line 1: its format is 2, and this llmcli reads 1"),
        (spoiled(1, llmcli_chat=True), "line 1: its format is True"),
        (spoiled(1, system=3), "line 1: system is 3"),
        (spoiled(1, model=...), "line 1: it lacks model"),
        (spoiled(2, parent=1), "line 2: it follows turn 1, and there are 0 turns"),
        (spoiled(2, parent=-1), "line 2: it follows turn -1"),
        (spoiled(2, parent="1"), "line 2: parent is '1'"),
        (spoiled(2, parent=True), "line 2: parent is True"),
        (spoiled(2, ended="died"), "line 2: ended is 'died', not one of stop, "),
        (spoiled(2, ended=[]), "line 2: ended is"),
        (spoiled(2, user=...), "line 2: it lacks user"),
        (spoiled(2, more=1), "line 2: it has the unknown key 'more'"),
        (spoiled(2, reply="\ud800"), "line 2: reply holds half of a surrogate pair"),
        (spoiled(3, goto=2), "line 3: it follows turn 2, and there are 1 turns"),
        (spoiled(3, branch="7"), "line 3: '7' cannot name a branch"),
        ([SOUND[0], SOUND[1][:20], SOUND[2]], "line 2: it is not JSON"),
        ([SOUND[0], "", SOUND[1]], "line 2: it is not JSON"),
        ([SOUND[0], "[" * 100_000], "line 2: it is not JSON"),
        ([SOUND[0], '{"parent":' + "9" * 5000 + "}"], "line 2: it is not JSON"),
    ],
)
def test_damage_is_named(lines: list[str], message: str) -> None:
    with pytest.raises(StorageError) as caught:
        parse("".join(f"{line}\n" for line in lines).encode(), "f")
    assert caught.value.message.startswith(f"f, {message}")


@pytest.mark.parametrize("tail", [b"hello", b'{"p', b"\xff", b'{"parent":1}'])
def test_only_a_beginning_of_our_own_is_forgiven(tail: bytes) -> None:
    data = SOUND[0].encode() + b"\n" + tail
    if tail == b'{"p':
        assert parse(data, "f").notice is not None
        return
    with pytest.raises(StorageError, match="line 2"):
        parse(data, "f")


def test_bytes_that_are_no_text() -> None:
    data = "\n".join(SOUND).encode().replace(b'"a"', b'"\xff"') + b"\n"
    with pytest.raises(StorageError, match="line 2: it is not UTF-8: byte 0xff"):
        parse(data, "f")


TEXT = st.text(st.characters(exclude_categories=["Cs"]))


@given(user=TEXT, reply=TEXT, system=st.none() | TEXT)
def test_any_text_survives(user: str, reply: str, system: str | None) -> None:
    talk = Conversation(begun(system=system))
    talk.add(said(user, reply), parent=None)
    again = parse(data_of(talk), "f").conversation
    assert (again.turns, again.system) == (talk.turns, system)


@given(st.binary())
def test_any_bytes_are_read_or_refused(tail: bytes) -> None:
    for data in (tail, SOUND[0].encode() + b"\n" + tail):
        with suppress(StorageError):
            parse(data, "f")
