"""Lists and tables as lines that fit a width without losing anything. Must not know views."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

# Below this a hanging indent would leave no room for the text.
_LEAST = 20


class Flow(str):
    """A line of words that whoever shows it may break, and go on `indent` cells from the left."""

    indent: int

    def __new__(cls, text: str, indent: int = 0) -> Flow:
        self = super().__new__(cls, text)
        self.indent = indent
        return self


def table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    width: int | None,
    *,
    left: Sequence[int] = (0,),
) -> list[str]:
    """Columns padded to their widest cell, right-aligned but for those in `left`.

    Where that is wider than `width`, each row becomes a block of its own, a line a cell.
    """
    cells = [list(map(str, row)) for row in (header, *rows)]
    widths = [max(map(cells_wide, column)) for column in zip(*cells, strict=True)]
    if width is not None and sum(widths) + 2 * (len(widths) - 1) > width:
        return _stacked(header, rows, width)
    return [
        "  ".join(
            _pad(cell, wide, left=at in left)
            for at, (cell, wide) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]


def pairs(rows: Sequence[tuple[str, str]], width: int | None) -> list[str]:
    """Label and text, side by side; a long text goes on under itself."""
    wide = max((cells_wide(label) for label, _ in rows), default=0) + 2
    lines = []
    for label, text in rows:
        lines += folded(text, width, first=_pad(label, wide, left=True), rest=" " * wide)
    return lines


def folded(text: str, width: int | None, *, first: str = "", rest: str = "") -> list[str]:
    """`text` in lines of at most `width`, the first one after `first`, the others after `rest`.

    Where nothing is to be fitted it is one Flow.
    """
    whole = first + re.sub(r"\s", " ", text)
    if width is None or cells_wide(whole) <= width:
        return [Flow(whole.rstrip(), cells_wide(rest))]
    if width - cells_wide(rest) < _LEAST:
        rest = "  "
    return list(broken(whole, max(width, cells_wide(first) + 1), rest=rest))


def broken(line: str, width: int, *, rest: str = "") -> Iterator[str]:
    """A line in lines of at most `width` cells, cut between words where that can be.

    All but the first begin with `rest`, and none ends in spaces.
    """
    now, empty = "", ""
    for word in re.findall(r"\s+|\S+", line):
        if cells_wide(now + word) <= width:
            now += word
            continue
        if now.strip() and (word.isspace() or cells_wide(rest + word) <= width):
            yield now.rstrip()
            now = empty = rest
            now += "" if word.isspace() else word
            continue
        for char in word:
            if cells_wide(now + char) > width and now != empty:
                yield now.rstrip()
                now = empty = rest
            now += char
    yield now.rstrip()


def cells_wide(text: str) -> int:
    """Columns that a terminal needs for `text`."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _pad(text: str, width: int, *, left: bool) -> str:
    space = " " * (width - cells_wide(text))
    return text + space if left else space + text


def _stacked(header: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[str]:
    lines: list[str] = []
    for row in rows:
        named = [(name, cell) for name, cell in zip(header, row, strict=True) if cell]
        lines += ["", *pairs(named, width)] if lines else pairs(named, width)
    return lines
