"""Talk: what one chat on a terminal holds. Commands work on it; it decides nothing itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from llmcli.cli.chatting.chosen import Chosen
from llmcli.cli.chatting.typed import Typed

if TYPE_CHECKING:
    from llmcli.acquire.resolve import Resolved
    from llmcli.chat.keeper import Keeper
    from llmcli.chat.shelf import Shelf
    from llmcli.engine.chatting import Chat, Done


class Reader(Protocol):
    """Where messages come from. `interactive` tells whether a person types them."""

    interactive: bool

    def read(self, *, meter: Callable[[], str], draft: str = "") -> Typed:
        """Raises EOFError at the end, PressedError at Ctrl-C; `draft` is text to begin with."""


class LeaveError(Exception):
    """The chat is to end with this exit code."""

    def __init__(self, code: int = 0) -> None:
        super().__init__(f"leave with {code}")
        self.code = code


@dataclass(slots=True)
class Totals:
    """What all turns of this process cost together."""

    turns: int = 0
    kept: int = 0
    prefilled: int = 0
    new: int = 0

    def add(self, done: Done) -> None:
        self.turns += 1
        self.kept += done.kept
        self.prefilled += done.prefilled
        self.new += done.new


@dataclass(slots=True, kw_only=True)
class Talk:
    """`waiting` are texts of files for the next message; `editing` is the turn that it replaces."""

    chat: Chat
    chosen: Chosen
    resolved: Resolved
    shelf: Shelf
    keeper: Keeper
    reader: Reader
    totals: Totals = field(default_factory=Totals)
    last: Done | None = None
    waiting: list[str] = field(default_factory=list)
    editing: int | None = None
    draft: str = ""
    saved: set[Path] = field(default_factory=set)
    failed: bool = False

    @property
    def quiet(self) -> bool:
        return self.chosen.chatting.quiet

    @property
    def verbose(self) -> bool:
        return self.chosen.chatting.verbose

    def choose(self, chosen: Chosen) -> None:
        """Use these settings from the next turn on; raises UsageError, and changes nothing."""
        self.chat.change(chosen.chat_options())
        self.chosen = chosen
