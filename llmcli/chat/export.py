"""A conversation as one file for somebody else: the whole tree, or Markdown to read."""

from __future__ import annotations

from pathlib import Path

from llmcli.chat.conversation import Conversation


def to_markdown(conversation: Conversation) -> str:
    """The system message and the turns that lead to the tip, every text in a fence of its own."""
    raise NotImplementedError


def save(conversation: Conversation, path: Path, *, replace: bool = False) -> None:
    """The whole tree in the format that `Shelf.load` reads; the file is written whole or not at
    all.

    Raises UsageError where there is a file and not `replace`, StorageError where it cannot be
    written.
    """
    raise NotImplementedError


def export(conversation: Conversation, path: Path, *, replace: bool = False) -> None:
    """`to_markdown` as a file; raises as `save` does."""
    raise NotImplementedError
