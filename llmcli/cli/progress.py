"""Progress bars on stderr, for whoever watches a terminal; elsewhere a line or nothing."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

from llmcli.cli import terminal
from llmcli.cli.control_codes import visible_line

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import ProgressColumn, TaskID

# Work shorter than this is over before a bar could be read.
_PATIENCE_SECONDS = 0.7


class FetchProgress:
    """What acquire/ reports: a bar of bytes, or without a terminal one line at the start."""

    def __init__(self) -> None:
        self._bar: RichProgress | None = None
        self._task: TaskID | None = None

    def start(self, label: str, total_bytes: int | None) -> None:
        self.finish()
        if not terminal.draws():
            size = f" ({total_bytes / 1e6:.0f} MB)" if total_bytes else ""
            terminal.note(f"{label}{size}")
            return
        self._bar = _byte_bar()
        self._bar.start()
        self._task = self._bar.add_task(visible_line(label), total=total_bytes)

    def advance(self, n: int) -> None:
        # Called from other threads as well, while finish() may be under way.
        bar, task = self._bar, self._task
        if bar is not None and task is not None:
            bar.advance(task, n)

    def finish(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def notice(self, line: str) -> None:
        if self._bar is not None:
            self._bar.stop()
        terminal.note(line)
        if self._bar is not None:
            self._bar.start()

    def __enter__(self) -> FetchProgress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.finish()


class StepProgress:
    """A bar that appears only once the work has lasted a while, and leaves no trace."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._begun = time.monotonic()
        self._bar: RichProgress | None = None
        self._task: TaskID | None = None

    def __call__(self, done: int, total: int, what: str = "") -> None:
        """`what` is under way now; where it is empty, the label stays alone."""
        if self._bar is None:
            late = time.monotonic() - self._begun > _PATIENCE_SECONDS
            if done >= total or not late or not terminal.draws():
                return
            self._bar = _count_bar()
            self._bar.start()
            self._task = self._bar.add_task(self._label, total=total)
        assert self._task is not None
        label = f"{self._label}: {visible_line(what)}" if what else self._label
        self._bar.update(self._task, completed=done, description=label)
        if done >= total:
            self.finish()

    def finish(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def __enter__(self) -> StepProgress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.finish()


class RowsProgress:
    """How many rows of many are done, and the rate of new tokens; leaves no trace."""

    def __init__(self, total: int, *, drawn: bool) -> None:
        self._bar: RichProgress | None = None
        self._task: TaskID | None = None
        if drawn and terminal.draws():
            self._bar = _rate_bar()
            self._bar.start()
            self._task = self._bar.add_task("answers", total=total, rate="")

    def __call__(self, done: int, new_tokens: int, seconds: float) -> None:
        if self._bar is not None and self._task is not None:
            rate = f"{new_tokens / seconds:.0f} tok/s" if seconds else ""
            self._bar.update(self._task, completed=done, rate=rate)

    def finish(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def _byte_bar() -> RichProgress:
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TransferSpeedColumn

    text = TextColumn("{task.description}", markup=False)
    return _bar(text, BarColumn(), DownloadColumn(), TransferSpeedColumn())


def _count_bar() -> RichProgress:
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn

    text = TextColumn("{task.description}", markup=False)
    return _bar(text, BarColumn(), TaskProgressColumn())


def _rate_bar() -> RichProgress:
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn

    text = TextColumn("{task.description}", markup=False)
    rate = TextColumn("{task.fields[rate]}", markup=False)
    return _bar(text, BarColumn(), MofNCompleteColumn(), rate)


def _bar(*columns: ProgressColumn) -> RichProgress:
    """A bar on stderr that leaves no trace, and leaves sys.stdout and sys.stderr alone."""
    from rich.console import Console
    from rich.progress import Progress as RichProgress

    return RichProgress(
        *columns,
        console=Console(file=sys.stderr, markup=False, highlight=False, emoji=False),
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
