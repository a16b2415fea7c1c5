"""Grids beyond plain heat maps: words in the squares, and many small maps side by side."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Sequence
from html import escape

from llmcli.cli.inspecting.svg import FONT, Svg, clean, text_at, text_width

_ROW = 22
# Of a map's squares, which are pixels that no style reaches: readable on light and on dark.
_BLUE = "1f86cc"


def word_grid(
    title: str,
    cells: Sequence[Sequence[tuple[str, float]]],
    *,
    rows: Sequence[str],
    columns: Sequence[str],
    notes: Sequence[Sequence[str]],
) -> Svg:
    """A word a square, on a ground as strong as its value, which lies between 0 and 1."""
    words = [word for row in cells for word, _ in row]
    wide = max(text_width([*words, *columns]) + 10, 30)
    left, head = text_width(rows) + 12, 2 * FONT + 26
    body = [text_at(4, FONT + 4, title, kind="ink title")]
    for at, name in enumerate(columns):
        body.append(text_at(left + at * wide + 4, head - 8, name, kind="faint"))
    for down, row in enumerate(cells):
        y = head + down * _ROW
        body.append(text_at(left - 6, y + 15, rows[down], kind="faint", anchor="end"))
        for across, (word, value) in enumerate(row):
            x = left + across * wide
            body.append(
                f"<g><title>{escape(clean(notes[down][across]))}</title>"
                f'<rect class="ground" x="{x:.1f}" y="{y}" width="{wide - 2:.1f}" '
                f'height="{_ROW - 2}" fill-opacity="{0.75 * min(max(value, 0.0), 1.0):.3f}"/>'
                f"{text_at(x + 4, y + 15, word)}</g>"
            )
    width = max(left + wide * len(columns), text_width([title]) * 1.05 + 8) + 8
    return Svg(title, width, head + _ROW * len(cells) + 8, "".join(body))


def small_maps(
    title: str,
    maps: Sequence[Sequence[tuple[str, Sequence[Sequence[float]]]]],
    *,
    rows: Sequence[str],
    columns: Sequence[str] = (),
    size: int = 64,
) -> Svg:
    """A row of small heat maps for each row's name; each map has a note and is scaled to itself."""
    left, head, step = text_width(rows) + 12, 34 + (FONT + 4) * bool(columns), size + 6
    body = [text_at(4, FONT + 4, title, kind="ink title")]
    for across, name in enumerate(columns):
        middle = left + across * step + size / 2
        body.append(text_at(middle, head - 5, name, kind="faint", anchor="middle"))
    for down, row in enumerate(maps):
        y = head + down * step
        body.append(text_at(left - 6, y + size / 2, rows[down], kind="faint", anchor="end"))
        for across, (note, values) in enumerate(row):
            x = left + across * step
            body.append(
                f'<g><title>{escape(clean(note))}</title><rect class="rule" x="{x:.1f}" y="{y}" '
                f'width="{size}" height="{size}"/><image x="{x:.1f}" y="{y}" width="{size}" '
                f'height="{size}" style="image-rendering:pixelated" '
                f'href="data:image/png;base64,{_png(values)}"/></g>'
            )
    across = max(map(len, maps), default=0)
    width = max(left + step * across, text_width([title]) * 1.05 + 8) + 8
    return Svg(title, width, head + step * len(maps) + 8, "".join(body))


def _png(values: Sequence[Sequence[float]]) -> str:
    """Blue as opaque as the value is large, in base64; thousands of squares would be too big."""
    top = max((value for row in values for value in row), default=0.0) or 1.0
    colour = bytes.fromhex(_BLUE)
    lines = b"".join(
        b"\0" + b"".join(colour + bytes([round(255 * max(value, 0.0) / top)]) for value in row)
        for row in values
    )
    width, height = len(values[0]) if values else 0, len(values)
    header = struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b""))
    data = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(held)) + kind + held + struct.pack(">I", zlib.crc32(kind + held))
        for kind, held in chunks
    )
    return base64.b64encode(data).decode("ascii")
