"""Lists and tables as lines that fit a width without losing anything. Must not know views."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

# Below this a hanging indent would leave no room for the text.
_LEAST = 20


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
    """`text` in lines of at most `width`, the first one after `first`, the others after `rest`."""
    if width is None or cells_wide(first + text) <= width:
        return [(first + text).rstrip()]
    if width - len(rest) < _LEAST:
        rest = "  "
    return textwrap.wrap(
        first + text,
        max(width, len(first) + 1),
        subsequent_indent=rest,
        break_on_hyphens=False,
        drop_whitespace=True,
    )


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
