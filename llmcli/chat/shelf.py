"""Where conversations are kept: a folder of files, each named, locked by the one that writes it.

Must not know where that folder is: it is passed in.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from llmcli.chat.conversation import Conversation


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """One kept conversation, for a listing. `modified` is seconds since 1970.

    `first` is what the user said first; `problem` says why it cannot be read, else None.
    """

    name: str
    path: Path
    modified: float
    turns: int
    model: str
    first: str
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A conversation that saves itself at each change. `notice` is for the user, or None.

    `keeper.path` is its file, `keeper.name` what --resume calls it; the file appears with the
    first turn. `keeper.close()` lets another process open it.
    """

    conversation: Conversation
    keeper: Keeper
    notice: str | None = None


class Keeper:
    """Writes each event of one conversation to its file at once, and holds the file's lock."""

    path: Path
    name: str

    def close(self) -> None:
        """Let another process write the file. Closing twice does nothing."""
        raise NotImplementedError


class Shelf:
    """The folder of kept conversations; it is made, for its owner alone, when one is written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def new(self, *, model: str, system: str | None = None, name: str | None = None) -> Opened:
        """A conversation without turns; `name` None makes one of date and time.

        Raises UsageError for a name that is taken or that cannot be one.
        """
        raise NotImplementedError

    def resume(self, name: str | None = None) -> Opened:
        """The conversation of that name, or the one that was changed last.

        Raises UsageError where there is none, StorageError where its file is damaged (naming the
        line) or another process writes it. A last line that was cut short is dropped, and
        `notice` says so.
        """
        raise NotImplementedError

    def load(self, path: Path, *, name: str | None = None) -> Opened:
        """A copy of any conversation file, to go on with under a new name of its own."""
        raise NotImplementedError

    def listing(self) -> list[Saved]:
        """All conversations, the one changed last first; damaged ones too."""
        raise NotImplementedError
