"""Talk: what one chat on a terminal holds. Commands work on it; it decides nothing itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from llmcli.cli.chatting.chosen import Chosen
from llmcli.cli.chatting.typed import Typed
from llmcli.cli.running import find_draft, load_found, negative_prompt

if TYPE_CHECKING:
    from llmcli.acquire.resolve import Resolved
    from llmcli.chat.keeper import Keeper
    from llmcli.chat.shelf import Shelf
    from llmcli.engine.chatting import Chat, ChatOptions, Done
    from llmcli.engine.engine import Engine


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
    draft_model: Engine | None = None
    last: Done | None = None
    waiting: list[str] = field(default_factory=list)
    editing: int | None = None
    draft: str = ""
    saved: set[Path] = field(default_factory=set)
    exported: set[Path] = field(default_factory=set)
    failed: bool = False

    @property
    def quiet(self) -> bool:
        return self.chosen.chatting.quiet

    @property
    def verbose(self) -> bool:
        return self.chosen.chatting.verbose

    def choose(self, chosen: Chosen) -> None:
        """Use these settings from the next turn on; raises UsageError, and changes nothing."""
        draft = self.draft_model
        if chosen.decoding.draft_model != self.chosen.decoding.draft_model:
            draft = load_draft(chosen, self.resolved)
        self.chat.change(engine_options(chosen, self.chat.engine, draft))
        self.chosen, self.draft_model = chosen, draft

    def switch(self, engine: Engine, resolved: Resolved, chosen: Chosen) -> None:
        """Go on with another checkpoint; raises, and changes nothing, where it does not do."""
        draft = load_draft(chosen, resolved)
        options = engine_options(chosen, engine, draft)
        self.chat.switch_model(engine, model=resolved.name)
        self.chat.change(options)
        self.resolved, self.chosen, self.draft_model = resolved, chosen, draft


def load_draft(chosen: Chosen, resolved: Resolved) -> Engine | None:
    """The draft model that is asked for, for a target at `resolved`."""
    found = find_draft(chosen.decoding.draft_model, resolved, chosen.loading)
    return None if found is None else load_found(found, chosen.loading)


def engine_options(chosen: Chosen, engine: Engine, draft: Engine | None) -> ChatOptions:
    """The settings as a chat on that engine takes them."""
    request = chosen.request()
    return chosen.chat_options(negative=negative_prompt(engine, request), draft=draft)
