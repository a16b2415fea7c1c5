"""How this room tells what it is doing. Must not know how, or whether, it is drawn."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """What the caller draws. One bar at a time: start, advance ..., finish.

    `advance` may be called from another thread, and with a negative number when bytes
    have to be fetched again. A notice may come at any time, also inside a bar.
    """

    def start(self, label: str, total_bytes: int | None) -> None: ...

    def advance(self, n: int) -> None: ...

    def finish(self) -> None: ...

    def notice(self, line: str) -> None: ...


class Silent:
    """A Progress that draws nothing."""

    def start(self, label: str, total_bytes: int | None) -> None:
        pass

    def advance(self, n: int) -> None:
        pass

    def finish(self) -> None:
        pass

    def notice(self, line: str) -> None:
        pass
