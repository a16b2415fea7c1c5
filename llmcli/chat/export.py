"""A conversation as one file for somebody else: the whole tree, or Markdown to read."""

from __future__ import annotations

import re
from pathlib import Path

from llmcli.chat.conversation import Conversation
from llmcli.chat.files import write_whole
from llmcli.chat.keeper import Keeper
from llmcli.chat.record import as_bytes
from llmcli.errors import UsageError

_ENDED = {
    "stop": "",
    "length": ", ended by the length asked for",
    "context": ", ended by the context",
    "cut": ", cut by the user",
}


def to_markdown(conversation: Conversation) -> str:
    """The system message and the turns that lead to the tip, every text in a fence of its own."""
    parts = [f"# Conversation of {_code(conversation.begun.time)}"]
    if conversation.system is not None:
        parts += ["## System", _fenced(conversation.system)]
    for turn in conversation.path():
        said = turn.said
        parts += [
            f"## {turn.number}. User",
            _fenced(said.user),
            f"## {turn.number}. {_code(said.model)}, {_code(said.strategy)}{_ENDED[said.ended]}",
            _fenced(said.reply),
        ]
    return "\n\n".join(parts) + "\n"


def save(
    conversation: Conversation, path: Path, *, replace: bool = False, keeper: Keeper | None = None
) -> None:
    """The whole tree in the format that `Shelf.load` reads; written whole or not at all.

    Raises UsageError where there is a file and not `replace`, or where it is the one that
    `keeper` writes already; StorageError where it cannot be written.
    """
    _write(path, as_bytes(conversation.begun, conversation.events), replace, keeper)


def export(
    conversation: Conversation, path: Path, *, replace: bool = False, keeper: Keeper | None = None
) -> None:
    """`to_markdown` as a file; raises as `save` does."""
    _write(path, to_markdown(conversation).encode(), replace, keeper)


def _write(path: Path, data: bytes, replace: bool, keeper: Keeper | None) -> None:
    path = path.expanduser()
    kept = None if keeper is None else keeper.path
    if kept is not None and path.exists() and kept.exists() and path.samefile(kept):
        raise UsageError(
            f"{path} is where this conversation is kept already",
            hint="every change is saved there by itself; give another file",
        )
    write_whole(path, data, replace=replace)


def _fenced(text: str) -> str:
    """A code block that no text can end early."""
    fence = "`" * max(3, _longest_run(text) + 1)
    return f"{fence}text\n{text}\n{fence}"


def _code(text: str) -> str:
    """Inline code of one line, whatever stands in it."""
    shown = "".join(char if char.isprintable() else " " for char in text)
    mark = "`" * (_longest_run(shown) + 1)
    return f"{mark} {shown} {mark}" if "`" in shown else f"`{shown}`"


def _longest_run(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)
