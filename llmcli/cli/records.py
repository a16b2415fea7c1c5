"""A file of records, one JSON line each: appended so that no crash loses one, read to go on.

The first record also holds `run`, what the file was made with. Must not know what is in a
record besides `run`, `index`, `sample` and `error`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from llmcli.checkpoint.escape import printable
from llmcli.cli import interrupts, terminal
from llmcli.errors import LlmcliError, UsageError

Run = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Earlier:
    """What an interrupted run left: its description, its whole records, and their bytes."""

    run: Run | None = None
    records: tuple[Mapping[str, Any], ...] = ()
    size: int = 0


def read_earlier(path: Path) -> Earlier:
    """The records of a file; a last line that was cut short does not count.

    Raises UsageError where the file holds something else.
    """
    if not path.exists():
        return Earlier()
    try:
        data = path.read_bytes()
    except OSError as error:
        raise _unusable(path, error) from error
    whole = data[: data.rfind(b"\n") + 1]
    records = [
        _record(path, number, line) for number, line in enumerate(whole.splitlines(), start=1)
    ]
    if not records:
        return Earlier()
    run = records[0].get("run")
    if not isinstance(run, dict):
        raise _strange(path, 1, "has no `run`")
    return Earlier(run, tuple(records), len(whole))


def check_same(path: Path, earlier: Run, now: Run) -> None:
    """Raise UsageError naming the first thing in which two runs differ."""
    for name in dict.fromkeys((*earlier, *now)):
        before, after = (_plain(run.get(name)) for run in (earlier, now))
        if isinstance(before, dict) and isinstance(after, dict):
            check_same(path, before, after)
        elif before != after:
            raise UsageError(
                f"--resume: {printable(str(path))} was made with {name.replace('_', ' ')} "
                f"{_shown(before)}, and now it is {_shown(after)}",
                hint="give the prompts and options of the first run, or --overwrite",
            )


class RecordFile:
    """Open for appending after the first `size` bytes; the rest is cut off."""

    def __init__(self, path: Path, size: int) -> None:
        self._path = path
        try:
            self._stream: BinaryIO = path.open("ab")
            self._stream.truncate(size)
        except OSError as error:
            raise _unusable(path, error) from error

    def append(self, record: Mapping[str, Any]) -> None:
        """Whole, and on the disk when this returns; a Ctrl-C waits for it."""
        with interrupts.held():
            try:
                self._stream.write(terminal.json_line(record).encode() + b"\n")
                self._stream.flush()
                os.fsync(self._stream.fileno())
            except OSError as error:
                raise _unusable(self._path, error) from error

    def __enter__(self) -> RecordFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stream.close()


def _record(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        raise _strange(path, number, "is not valid JSON") from None
    if not isinstance(value, dict) or not isinstance(value.get("index"), int):
        raise _strange(path, number, "has no `index`")
    return value


def _strange(path: Path, number: int, what: str) -> UsageError:
    return UsageError(
        f"--resume: line {number} of {printable(str(path))} {what}; no run of --prompts wrote it",
        hint="name the right file, or --overwrite this one",
    )


def _unusable(path: Path, error: OSError) -> LlmcliError:
    return LlmcliError(
        f"--output {printable(str(path))} cannot be used: {error.strerror or error}",
        hint="check its permissions and the free space; --resume goes on from what it holds",
    )


def _plain(value: Any) -> Any:
    """As it is once written and read."""
    return json.loads(json.dumps(value))


def _shown(value: Any) -> str:
    return printable(json.dumps(value, ensure_ascii=False), 60)
