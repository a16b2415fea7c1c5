"""Opening a chat: checkpoint, template, conversation, reader. Cheap checks come first."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING

from llmcli.acquire.places import home
from llmcli.cli import terminal
from llmcli.cli.chatting.plain_reader import PlainReader
from llmcli.cli.running import find_model
from llmcli.errors import UsageError

if TYPE_CHECKING:
    from llmcli.acquire.resolve import Resolved
    from llmcli.chat.shelf import Opened, Shelf
    from llmcli.cli.chat_options import Chatting
    from llmcli.cli.chatting.completion import Offer
    from llmcli.cli.chatting.talk import Reader

# Narrower than this a line editor leaves no room for the line.
_NARROW = 30


_OFFER = "give --template FILE.jinja, or continue a text with `llmcli generate`"


def find_chat_model(name: str | None, template: Path | None, *, hint: str = _OFFER) -> Resolved:
    """The checkpoint's folder; UsageError where it has no chat template and none is given."""
    from llmcli.text.chat_template import find_template

    resolved = find_model(name)
    if template is None and find_template(resolved.path) is None:
        raise UsageError(
            f"{resolved.name} is a base model: it has no chat template, so it cannot chat",
            hint=hint,
        )
    return resolved


def open_shelf() -> Shelf:
    """Where conversations are kept."""
    from llmcli.chat.shelf import Shelf

    return Shelf(home() / "chats")


def open_earlier(shelf: Shelf, chatting: Chatting) -> Opened | None:
    """The conversation that --resume asks for; before a model, which may have to be fetched."""
    return None if chatting.resume is None else shelf.resume(chatting.resume or None)


def tell_of_another(opened: Opened, model: str) -> None:
    """Say so where a conversation goes on with another model."""
    tip = opened.conversation.tip
    before = opened.conversation.begun.model if tip is None else tip.said.model
    if before != model:
        terminal.note(f"warning: the conversation was with {before}, and goes on with {model}")


def make_reader(offers: Mapping[str, Offer]) -> Reader:
    """A line editor where there is a terminal that can do it, plain lines elsewhere."""
    shown = terminal.is_terminal(sys.stdout) or terminal.is_terminal(sys.stderr)
    typed = terminal.is_terminal(sys.stdin) and shown
    if not typed or terminal.is_dumb() or get_terminal_size().columns < _NARROW:
        return PlainReader()
    from llmcli.cli.chatting.editor import Editor

    return Editor(offers)
