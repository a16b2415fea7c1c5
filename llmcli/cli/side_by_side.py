"""Several texts with facts about each: side by side where a terminal is wide, else in turn.

Pure: strings in, lines out. Must not know streams.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from llmcli.cli.columns import Flow, broken, cells_wide, folded
from llmcli.cli.control_codes import visible, visible_line

# Narrower columns are hard to read.
_LEAST = 30
_GAP = 3


@dataclass(frozen=True, slots=True)
class Column:
    """A text under its title, and facts about it: (label, value)."""

    title: str
    text: str
    facts: tuple[tuple[str, str], ...]


def laid_out(columns: Sequence[Column], width: int | None) -> Iterator[str]:
    """Lines of at most `width` cells; None is a pipe, where texts stay as they are."""
    most = 0 if width is None else (width + _GAP) // (_LEAST + _GAP)
    if width is None or most < 2:
        for number, column in enumerate(columns):
            yield from ([""] if number else [])
            yield from _alone(column, width)
        return
    bands = math.ceil(len(columns) / most)
    size = math.ceil(len(columns) / bands)
    for start in range(0, len(columns), size):
        yield from ([""] if start else [])
        yield from _band(columns[start : start + size], width)


def _alone(column: Column, width: int | None) -> Iterator[str]:
    title = visible_line(column.title)
    yield from folded(title, width)
    yield "-" * min(cells_wide(title), width or 72, 72)
    if width is None:
        yield Flow(column.text)
    else:
        yield from wrapped(column.text, width)
    yield ""
    yield from folded("  ".join(f"{label} {value}" for label, value in column.facts), width)


def _band(columns: Sequence[Column], width: int) -> Iterator[str]:
    each = (width + _GAP) // len(columns) - _GAP
    titles = [wrapped(visible_line(column.title), each) for column in columns]
    yield from _beside(titles, each)
    yield from _beside([["-" * each]] * len(columns), each)
    yield from _beside([wrapped(column.text, each) for column in columns], each)
    yield ""
    margin = max(cells_wide(label) for column in columns for label, _ in column.facts) + 2
    facts = [[f"{label:<{margin}}{value}" for label, value in one.facts] for one in columns]
    yield from _beside(facts, each)


def _beside(blocks: Sequence[Sequence[str]], each: int) -> Iterator[str]:
    for row in zip_longest(*blocks, fillvalue=""):
        padded = (cell + " " * (each - cells_wide(cell)) for cell in row)
        yield (" " * _GAP).join(padded).rstrip()


def wrapped(text: str, width: int) -> list[str]:
    """`text` in lines of at most `width` cells, cut between words where that can be."""
    lines: list[str] = []
    for line in visible(text).replace("\t", "    ").split("\n"):
        lines += broken(line, width)
    return lines
