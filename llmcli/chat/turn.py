"""Turn: what was said and answered once, and where it stands in the tree."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, get_args

# As a token's finish reason; `cut` is a reply that the user broke off.
Ended = Literal["stop", "length", "context", "cut"]
ENDINGS: tuple[Ended, ...] = get_args(Ended)


def now() -> str:
    """This second, ISO 8601 with its offset."""
    return datetime.now().astimezone().isoformat(timespec="seconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """One exchange, before it has a place in the tree. `time` is ISO 8601 with its offset."""

    user: str
    reply: str
    ended: Ended
    time: str
    model: str
    strategy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """`number` counts turns in the order they were made, from 1, and is never used again.

    `parent` None begins a conversation. `system` is the system message it was said under.
    """

    number: int
    parent: int | None
    system: str | None
    said: Said


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A point to go on from: after `turn` (None: at the very beginning), under `system`."""

    turn: int | None = None
    system: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of a tree: its `depth` grows only where a turn has siblings (`forks`).

    `branches` are the names whose last turn this is; `current` is the turn to go on from, and
    `on_path` whether what is said next continues it.
    """

    turn: Turn
    depth: int
    forks: bool
    branches: tuple[str, ...]
    current: bool
    on_path: bool
