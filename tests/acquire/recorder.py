"""A Progress that remembers what it was told."""

from __future__ import annotations


class Recorder:
    def __init__(self) -> None:
        self.bars: list[tuple[str, int | None, int]] = []
        self.notices: list[str] = []
        self.steps = 0
        self._open: tuple[str, int | None, int] | None = None

    def start(self, label: str, total_bytes: int | None) -> None:
        assert self._open is None, "a bar inside a bar"
        self._open = (label, total_bytes, 0)

    def advance(self, n: int) -> None:
        assert self._open is not None, "advance outside a bar"
        label, total, done = self._open
        self._open = (label, total, done + n)
        self.steps += 1

    def finish(self) -> None:
        assert self._open is not None, "finish without start"
        self.bars.append(self._open)
        self._open = None

    def notice(self, line: str) -> None:
        assert "\n" not in line
        self.notices.append(line)
