"""Keeper: one conversation's file, which grows by a line at each change, under a lock.

Each line is on the disk before the change is over. Must not know what the lines mean.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from filelock import FileLock, Timeout

from llmcli.chat.events import Begun, Event, Spoken
from llmcli.chat.files import FOR_OWNER, cannot_write, write_whole
from llmcli.chat.record import as_bytes
from llmcli.errors import StorageError
from llmcli.whole_file import write_all

SUFFIX = ".jsonl"
_LOCKS = ".locks"


class Keeper:
    """Writes all events that the file lacks, so that what failed once is made up for later.

    `name` and `path` of a new conversation are settled when its file is made, with its first
    turn: where the name is taken meanwhile, a number is put after it.
    """

    def __init__(self, folder: Path, name: str, begun: Begun, *, taken: bool = False) -> None:
        """`taken` claims the name at once, else it is claimed with the first turn."""
        self._folder = folder
        self.name = name
        self.begun = begun
        self._lock: FileLock | None = None
        self._file: int | None = None
        # How many events the file holds, and in how many bytes
        self._events = 0
        self._size = 0
        if taken:
            self._lock = _locked(folder, name)

    @property
    def path(self) -> Path:
        return self._folder / f"{self.name}{SUFFIX}"

    def adopt(self, *, events: int, size: int) -> None:
        """Go on with the file as it is, cut to its first `size` bytes, which hold `events`."""
        try:
            self._open()
            assert self._file is not None
            if os.fstat(self._file).st_size != size:
                os.ftruncate(self._file, size)
            if size and _last_byte(self.path) != b"\n":
                write_all(self._file, b"\n")
                size += 1
        except OSError as error:
            raise cannot_write(self.path, error) from error
        self._events, self._size = events, size

    def sync(self, events: Sequence[Event]) -> None:
        """Write what the file lacks of `events`. Before the first turn nothing is written.

        Raises StorageError where that fails; the next call tries again.
        """
        if self._file is None and not any(isinstance(event, Spoken) for event in events):
            return
        try:
            if self._file is None or not self.path.exists():
                self._create(events)
            else:
                self._append(events)
        except OSError as error:
            raise cannot_write(self.path, error) from error

    def close(self) -> None:
        """Let another process write the file. Closing twice does nothing."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()

    def _create(self, events: Sequence[Event]) -> None:
        if self._lock is None:
            self._lock, self.name = _claim(self._folder, self.name)
        data = as_bytes(self.begun, events)
        # It is there already where an interrupt came between these lines
        ours = self.path.exists() and data.startswith(self.path.read_bytes())
        write_whole(self.path, data, replace=ours)
        self._open()
        self._events, self._size = len(events), len(data)

    def _append(self, events: Sequence[Event]) -> None:
        assert self._file is not None
        data = as_bytes(None, events[self._events :])
        here, there = os.fstat(self._file), self.path.stat()
        # Bytes too many are ours if a write was broken off
        extra = self.path.read_bytes()[self._size :] if here.st_size > self._size else b""
        same = os.path.samestat(here, there) and here.st_size >= self._size
        if not same or not data.startswith(extra):
            raise StorageError(
                f"{self.path} was changed by another program since it was opened",
                hint="save the conversation to another file",
            )
        if extra:
            os.ftruncate(self._file, self._size)
        write_all(self._file, data)
        self._events, self._size = len(events), self._size + len(data)

    def _open(self) -> None:
        if self._file is not None:
            os.close(self._file)
        flags = os.O_RDWR | os.O_APPEND | getattr(os, "O_BINARY", 0)
        self._file = os.open(self.path, flags, FOR_OWNER)


def _claim(folder: Path, name: str) -> tuple[FileLock, str]:
    """A lock on a name that no file has: the name itself, or with a number after it."""
    for number in range(1, 1000):
        tried = name if number == 1 else f"{name}-{number}"
        try:
            lock = _locked(folder, tried)
        except StorageError:
            if number == 999:
                raise
            continue
        if not (folder / f"{tried}{SUFFIX}").exists():
            return lock, tried
        lock.release()
    raise StorageError(f"no name like {name} is free in {folder}", hint="give another name")


def _locked(folder: Path, name: str) -> FileLock:
    locks = folder / _LOCKS
    try:
        locks.mkdir(parents=True, exist_ok=True, mode=0o700)
        with suppress(OSError):
            folder.chmod(0o700)
        lock = FileLock(locks / f"{name}.lock", mode=FOR_OWNER)
        lock.acquire(timeout=0)
    except Timeout:
        raise StorageError(
            f"the conversation {name} is open in another process",
            hint="close it there, or begin another one",
        ) from None
    except OSError as error:
        raise cannot_write(folder, error) from error
    return lock


def _last_byte(path: Path) -> bytes:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1)
