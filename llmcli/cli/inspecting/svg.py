"""Pictures as SVG, and the page that holds them: self-contained, no scripts, all text escaped.

Colours carry values by opacity over the background, so that light and dark both read.
Must not know views.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from llmcli.cli.columns import Flow, cells_wide

FONT = 12
# Of a monospaced letter, in units of its size.
LETTER = 0.62
_GAP = 24

_STYLE = (
    ".paper{fill:#fff}.ink{fill:#1c1e21}.faint{fill:#6a7076}"
    ".rule{stroke:#6a7076;fill:none;stroke-width:1}"
    ".up{fill:#0072b2}.down{fill:#d55e00}.ground{fill:#56b4e9}"
    ".edge{stroke:#8888;stroke-width:.5}"
    "text{font:12px ui-monospace,Menlo,Consolas,monospace}.title{font-weight:bold}"
    "@media(prefers-color-scheme:dark){.paper{fill:#14161a}.ink{fill:#e8eaed}"
    ".faint{fill:#9aa0a6}.rule{stroke:#9aa0a6}.up{fill:#3aa0e0}.down{fill:#f08040}"
    ".ground{fill:#0072b2}}"
)
_PAGE_STYLE = (
    "body{margin:2rem auto;max-width:70rem;padding:0 1rem;background:#fff;color:#1c1e21;"
    "font:16px/1.5 system-ui,sans-serif}pre{overflow-x:auto;font:13px/1.4 ui-monospace,Menlo,"
    "Consolas,monospace}figure{margin:1rem 0;overflow-x:auto}h1,p{overflow-wrap:anywhere}"
    ".flow{display:block;white-space:pre-wrap;max-width:100ch;overflow-wrap:anywhere}"
    "@media(prefers-color-scheme:dark){body{background:#14161a;color:#e8eaed}}"
)
# Of Okabe and Ito's palette, which colour-blind readers can tell apart.
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9")


@dataclass(frozen=True, slots=True)
class Svg:
    """One picture of so many pixels; `body` lies below an optional title and is escaped."""

    title: str
    width: float
    height: float
    body: str

    def element(self) -> str:
        """The picture alone, to be put into a page or another picture."""
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{_n(self.width)}" '
            f'height="{_n(self.height)}" viewBox="0 0 {_n(self.width)} {_n(self.height)}" '
            f'role="img" aria-label="{escape(clean(self.title))}"><style>{_STYLE}</style>'
            f'<rect class="paper" width="{_n(self.width)}" height="{_n(self.height)}"/>'
            f"{self.body}</svg>\n"
        )

    def document(self) -> str:
        """A file of its own."""
        return f'<?xml version="1.0" encoding="UTF-8"?>\n{self.element()}'


def clean(text: str) -> str:
    """`text` without what XML forbids, and with control codes visible."""
    shown = (c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return "".join(shown)


def text_at(
    x: float, y: float, text: str, *, kind: str = "ink", anchor: str = "start", turn: int = 0
) -> str:
    """One line of text; `turn` degrees around its own point."""
    turned = f' transform="rotate({turn} {_n(x)} {_n(y)})"' if turn else ""
    return (
        f'<text class="{kind}" x="{_n(x)}" y="{_n(y)}" text-anchor="{anchor}"{turned} '
        f'xml:space="preserve">{escape(clean(text))}</text>'
    )


def text_width(texts: Sequence[str]) -> float:
    """Pixels of the longest."""
    return max((cells_wide(clean(text)) for text in texts), default=0) * FONT * LETTER


def heat_map(
    title: str,
    values: Sequence[Sequence[float | None]],
    *,
    rows: Sequence[str],
    columns: Sequence[str],
    most: float | None = None,
    notes: Sequence[Sequence[str]] | None = None,
    cell: int = 18,
    scale: bool = True,
) -> Svg:
    """A square a value: opacity is |value| / `most`, blue above zero, orange below, None empty.

    `most` is by default the largest magnitude. `notes` are shown under the pointer, and `scale`
    below the map says what the colours stand for.
    """
    known = [abs(value) for row in values for value in row if value is not None]
    top = most or max(known, default=1.0) or 1.0
    left, head = text_width(rows) + 12, text_width(columns) + 12 + 2 * FONT
    body = [text_at(4, FONT + 4, title, kind="ink title")]
    for at, name in enumerate(rows):
        body.append(text_at(left - 6, head + at * cell + cell * 0.7, name, anchor="end"))
    for at, name in enumerate(columns):
        body.append(text_at(left + at * cell + cell * 0.7, head - 6, name, turn=-90))
    for down, row in enumerate(values):
        for across, value in enumerate(row):
            note = f"{rows[down]}, {columns[across]}: {'-' if value is None else f'{value:.4g}'}"
            if notes is not None:
                note = notes[down][across]
            body.append(_cell(left + across * cell, head + down * cell, cell, value, top, note))
    wide = left + cell * max(map(len, values), default=0) + 12
    high = head + cell * len(values) + 12
    if scale and known:
        signed = any(value < 0 for row in values for value in row if value is not None)
        drawn, end = _scale(left, high, top, signed=signed)
        body.append(drawn)
        wide, high = max(wide, end), high + FONT + 12
    width = max(wide, text_width([title]) * 1.05 + 8)
    return Svg(title, width, high, "".join(body))


def _scale(x: float, y: float, top: float, *, signed: bool) -> tuple[str, float]:
    """The colours from the least value to `top`, and where they end."""
    marks, size = [f"{-top:.3g}" if signed else "0", f"{top:.3g}"], FONT
    steps = [step / 4 for step in range(-4 if signed else 0, 5)]
    right = x + text_width(marks[:1]) + 6
    body = [text_at(x, y + FONT - 2, marks[0], kind="faint")]
    body += [
        _cell(right + at * size, y, size, step, 1.0, f"{step * top:.4g}")
        for at, step in enumerate(steps)
    ]
    right += size * len(steps) + 6
    body.append(text_at(right, y + FONT - 2, marks[1], kind="faint"))
    return "".join(body), right + text_width(marks[1:]) + 8


def _cell(x: float, y: float, size: int, value: float | None, top: float, note: str) -> str:
    strength = 0.0 if value is None else min(abs(value) / top, 1.0)
    kind = "up" if value is None or value >= 0 else "down"
    return (
        f'<rect class="{kind} edge" x="{_n(x)}" y="{_n(y)}" width="{size - 1}" '
        f'height="{size - 1}" fill-opacity="{strength:.3f}">'
        f"<title>{escape(clean(note))}</title></rect>"
    )


def bars(title: str, rows: Sequence[tuple[str, float, str]], *, length: int = 420) -> Svg:
    """A horizontal bar a row: its label, its value (at least 0) and the text behind it."""
    top = max((value for _, value, _ in rows), default=1.0) or 1.0
    left, step = text_width([label for label, _, _ in rows]) + 12, 20
    body = [text_at(4, FONT + 4, title, kind="ink title")]
    for at, (label, value, text) in enumerate(rows):
        # What is there shows, however small it is beside the others.
        y, long = 28 + at * step, max(length * value / top, 1.0 * (value > 0))
        body.append(text_at(left - 6, y + 13, label, anchor="end"))
        body.append(
            f'<rect class="up" x="{_n(left)}" y="{y}" width="{_n(long)}" height="15" '
            f'fill-opacity="0.75"/>'
        )
        body.append(text_at(left + long + 6, y + 13, text, kind="faint"))
    wide = left + length + text_width([text for _, _, text in rows]) + 16
    width = max(wide, text_width([title]) * 1.05 + 8)
    return Svg(title, width, 36 + step * len(rows), "".join(body))


def lines(
    title: str,
    series: Sequence[tuple[str, Sequence[tuple[float, float]]]],
    *,
    x: str,
    y: str,
    size: tuple[int, int] = (520, 280),
) -> Svg:
    """A line a series of (x, y) points over common axes that begin at the smallest values."""
    points = [point for _, line in series for point in line]
    xs, ys = [p[0] for p in points] or [0.0], [p[1] for p in points] or [0.0]
    (x0, x1), (y0, y1) = (min(xs), max(xs)), (min(0.0, *ys), max(ys))
    across, down = size
    marks = [f"{value:.4g}" for value in (y0, y1)]
    left, head = max(text_width(marks), 2 * FONT) + 24, 40

    def place(point: tuple[float, float]) -> str:
        right = left + across * (point[0] - x0) / ((x1 - x0) or 1)
        return f"{_n(right)},{_n(head + down - down * (point[1] - y0) / ((y1 - y0) or 1))}"

    body = [text_at(4, FONT + 4, title, kind="ink title")]
    body.append(f'<path class="rule" d="M{_n(left)} {head}v{down}h{across}"/>')
    for at, (name, line) in enumerate(series):
        colour = COLOURS[at % len(COLOURS)]
        joined = " ".join(place(point) for point in line)
        body.append(f'<polyline points="{joined}" fill="none" stroke="{colour}" stroke-width="2"/>')
        y_at = head + 8 + at * 18
        body.append(
            f'<rect x="{_n(left + across + 12)}" y="{y_at - 9}" width="10" height="10" '
            f'fill="{colour}"/>'
        )
        body.append(text_at(left + across + 28, y_at, name))
    for value, height in ((marks[1], head + 10), (marks[0], head + down)):
        body.append(text_at(left - 6, height, value, kind="faint", anchor="end"))
    for end, right, anchor in ((x0, left, "start"), (x1, left + across, "end")):
        below = head + down + 16
        body.append(text_at(right, below, f"{end:.4g}", kind="faint", anchor=anchor))
    middle = head + down + 16
    body.append(text_at(left + across / 2, middle, x, kind="faint", anchor="middle"))
    body.append(text_at(12, head + down / 2, y, kind="faint", anchor="middle", turn=-90))
    wide = left + across + 40 + text_width([name for name, _ in series])
    width = max(wide, text_width([title]) * 1.05 + 8)
    return Svg(title, width, head + down + 28, "".join(body))


def stacked(pictures: Sequence[Svg]) -> Svg:
    """Several pictures, one below the other, as one."""
    if len(pictures) == 1:
        return pictures[0]
    body, y = [], 0.0
    for picture in pictures:
        body.append(f'<g transform="translate(0 {_n(y)})">{picture.body}</g>')
        y += picture.height + _GAP
    width = max((picture.width for picture in pictures), default=1)
    return Svg("; ".join(picture.title for picture in pictures), width, y, "".join(body))


def page(title: str, parts: Sequence[tuple[str, str, Sequence[Svg], Sequence[str]]]) -> str:
    """An HTML page of parts: heading, one line about it, pictures, and lines of text.

    Columns keep their places; a Flow is broken where the window ends.
    """
    sections = []
    for heading, about, pictures, lines in parts:
        figures = "".join(f"<figure>{picture.element()}</figure>" for picture in pictures)
        shown = "".join(_page_line(line) for line in lines)
        sections.append(
            f"<section><h2>{escape(clean(heading))}</h2><p>{escape(clean(about))}</p>"
            f"{figures}<pre>{shown}</pre></section>\n"
        )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{escape(clean(title))}</title><style>{_PAGE_STYLE}</style></head>\n"
        f"<body><h1>{escape(clean(title))}</h1>\n{''.join(sections)}</body></html>\n"
    )


def _page_line(line: str) -> str:
    indent = line.indent if isinstance(line, Flow) else 0
    hanging = f' style="padding-left:{indent}ch;text-indent:-{indent}ch"' if indent else ""
    flows = isinstance(line, Flow)
    return "".join(
        f'<span class="flow"{hanging}>{escape(clean(one))}</span>'
        if flows and one
        else f"{escape(clean(one))}\n"
        for one in line.split("\n")
    )


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
