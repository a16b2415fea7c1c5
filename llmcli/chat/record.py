"""The bytes of a conversation's file, to events and back.

A crash can cut the last line short, and that alone is forgiven. Must not know where files lie.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from llmcli.chat.conversation import Conversation
from llmcli.chat.events import (
    FIRST_WORDS,
    LINE_STARTS,
    Begun,
    Event,
    line_of,
    parse_begun,
    parse_event,
)
from llmcli.errors import StorageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """`sound` is how many bytes are kept; `notice` says what was dropped after them."""

    conversation: Conversation
    sound: int
    notice: str | None


def as_bytes(begun: Begun | None, events: Sequence[Event]) -> bytes:
    """Lines of a file; with `begun`, from its first line on."""
    lines = [line_of(one) for one in ([begun] if begun else [])]
    lines += [line_of(one) for one in events]
    return "".join(f"{line}\n" for line in lines).encode()


def parse(data: bytes, name: str) -> Record:
    """`name` is what errors call the file.

    Raises StorageError naming the line, save for a last line that was cut short.
    """
    *lines, rest = data.split(b"\n")
    notice = None
    if rest and lines and _cut_short(rest, LINE_STARTS):
        notice = f"the last line of {name} was cut short, as a crash leaves it; it is left out"
    elif rest and not lines and _cut_short(rest, (FIRST_WORDS,)):
        raise _fault(name, 1, "it was cut short, so nothing can be told")
    elif rest:
        lines.append(rest)
        rest = b""
    if not lines:
        raise _fault(name, 1, "the file is empty")
    try:
        conversation = Conversation(parse_begun(_text(lines[0])))
    except ValueError as error:
        raise _fault(name, 1, str(error)) from None
    for number, line in enumerate(lines[1:], start=2):
        try:
            conversation.apply(parse_event(_text(line)))
        except ValueError as error:
            raise _fault(name, number, str(error)) from None
    return Record(conversation=conversation, sound=len(data) - len(rest), notice=notice)


def _cut_short(line: bytes, starts: Sequence[str]) -> bool:
    """Whether `line` is a beginning of a line of ours that was never finished."""
    # A power failure may leave zeros where bytes were to come
    line = line.rstrip(b"\0")
    ours = any(line.startswith(start.encode()[: len(line)]) for start in starts)
    # No beginning of an object is itself a whole one
    return ours and not _is_json(line)


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _text(line: bytes) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not UTF-8: byte 0x{line[error.start]:02x}") from None


def _fault(name: str, line: int, what: str) -> StorageError:
    return StorageError(
        f"{name}, line {line}: {what}",
        hint="mend or delete that line, or begin another conversation",
    )
