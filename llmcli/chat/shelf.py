"""Where conversations are kept: a folder of files, each named, locked by the one that writes it.

Must not know where that folder is: it is passed in.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from llmcli.chat.conversation import Conversation
from llmcli.chat.events import Begun
from llmcli.chat.files import read_file, reason
from llmcli.chat.keeper import SUFFIX, Keeper
from llmcli.chat.record import Record, parse
from llmcli.chat.turn import now
from llmcli.errors import StorageError, UsageError

# Letters and digits of any script first, so that no name is hidden or leads out of the folder.
_NAME = re.compile(r"[^\W_][\w.-]{0,99}(?<!\.)")
# Windows opens its devices under these names, whatever follows a dot.
_DEVICES = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """One kept conversation, for a listing. `modified` is seconds since 1970.

    `first` is what the user said first; `problem` says why it cannot be read, else None.
    """

    name: str
    path: Path
    modified: float
    turns: int = 0
    model: str = ""
    first: str = ""
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


class Shelf:
    """The folder of kept conversations; it is made, for its owner alone, when one is written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def new(self, *, model: str, system: str | None = None, name: str | None = None) -> Opened:
        """A conversation without turns; `name` None makes one of date and time.

        Raises UsageError for a name that is taken or that cannot be one.
        """
        begun = Begun(time=now(), model=model, system=system)
        return self._opened(Conversation(begun), name)

    def resume(self, name: str | None = None) -> Opened:
        """The conversation of that name, or the one that was changed last.

        Raises UsageError where there is none, StorageError where its file is damaged (naming the
        line) or another process writes it. A last line that was cut short is dropped, and
        `notice` says so.
        """
        if name is None:
            names = self._names()
            if not names:
                raise UsageError(
                    f"there is no conversation in {self.folder}",
                    hint="begin one: every conversation is kept by itself",
                )
            name = names[0]
        path = self._path(name)
        if not path.exists():
            known = ", ".join(self._names()[:5])
            raise UsageError(
                f"there is no conversation {name} in {self.folder}",
                hint=f"the last ones are {known}" if known else "none has been kept yet",
            )
        keeper = Keeper(self.folder, name, Begun(time="", model=""), taken=True)
        try:
            record = parse(read_file(path), str(path))
            keeper.adopt(events=len(record.conversation.events), size=record.sound)
        except BaseException:
            keeper.close()
            raise
        record.conversation.journal = keeper.sync
        keeper.begun = record.conversation.begun
        return Opened(conversation=record.conversation, keeper=keeper, notice=record.notice)

    def load(self, path: Path, *, name: str | None = None) -> Opened:
        """A copy of any conversation file, to go on with under a new name of its own."""
        record = read_record(path)
        return self._opened(record.conversation, name, record.notice)

    def listing(self) -> list[Saved]:
        """All conversations, the one changed last first; damaged ones too."""
        return [self._saved(name) for name in self._names()]

    def _opened(
        self, conversation: Conversation, name: str | None, notice: str | None = None
    ) -> Opened:
        if name is not None and self._path(name).exists():
            raise UsageError(
                f"there is a conversation {name} already",
                hint=f"--resume {name} goes on with it; or give another name",
            )
        keeper = Keeper(
            self.folder,
            name or f"{datetime.now():%Y-%m-%d-%H%M%S}",
            conversation.begun,
            taken=name is not None,
        )
        conversation.journal = keeper.sync
        return Opened(conversation=conversation, keeper=keeper, notice=notice)

    def _path(self, name: str) -> Path:
        if not _NAME.fullmatch(name) or _DEVICES.fullmatch(name):
            raise UsageError(
                f"{name!r} cannot name a conversation",
                hint="take letters, digits, '.', '-' and '_', a letter or digit first; "
                "up to 100 of them",
            )
        return self.folder / f"{name}{SUFFIX}"

    def _names(self) -> list[str]:
        """The one changed last first."""
        found: list[tuple[float, str]] = []
        try:
            for path in self.folder.glob(f"*{SUFFIX}"):
                name = path.name.removesuffix(SUFFIX)
                if _NAME.fullmatch(name) and path.is_file():
                    found.append((path.stat().st_mtime, name))
        except OSError as error:
            raise StorageError(
                f"{self.folder} cannot be read: {reason(error)}", hint="check its permissions"
            ) from error
        return [name for _, name in sorted(found, reverse=True)]

    def _saved(self, name: str) -> Saved:
        path = self.folder / f"{name}{SUFFIX}"
        try:
            modified = path.stat().st_mtime
            conversation = read_record(path).conversation
        except (StorageError, OSError) as error:
            what = error.message if isinstance(error, StorageError) else reason(error)
            return Saved(name=name, path=path, modified=0.0, problem=what)
        turns = conversation.turns
        return Saved(
            name=name,
            path=path,
            modified=modified,
            turns=len(turns),
            model=turns[-1].said.model if turns else conversation.begun.model,
            first=turns[0].said.user if turns else "",
        )


def read_record(path: Path) -> Record:
    """A conversation's file, wherever it lies."""
    path = path.expanduser()
    return parse(read_file(path), str(path))
