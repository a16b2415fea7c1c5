"""The positions view: pairs that turn, tables that are added, slopes; and the check of distance."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from llmcli.cli.columns import folded, pairs, table
from llmcli.cli.inspecting.asked import Asked
from llmcli.cli.inspecting.drawing import Drawing
from llmcli.cli.inspecting.subject import Subject
from llmcli.cli.inspecting.svg import Svg, bars, lines
from llmcli.errors import UsageError
from llmcli.insight.bounds import check_between
from llmcli.insight.ranges import written

if TYPE_CHECKING:
    from llmcli.insight.positions import Positions, Rotary, Slopes, Table

_MOST = 1 << 40
_SHOWN = 16


def _compute(subject: Subject, asked: Asked) -> Positions:
    spec = subject.facts.spec
    if len(asked.context or ()) > 1:
        raise UsageError("view positions takes one --context", hint="give it once")
    context = asked.context[0] if asked.context else spec.context
    check_between("--context", context, 2, _MOST)
    from llmcli.insight.learned_table import learned_table
    from llmcli.insight.positions import measure_positions

    return measure_positions(spec, context=context, learned=learned_table(subject.facts))


def _lines(found: Positions, width: int | None) -> list[str]:
    out: list[str] = []
    for one in found.rotary:
        out += ["", *_rotary(found, one, width)] if out else _rotary(found, one, width)
    if found.slopes is not None:
        out += _slopes(found, found.slopes, width)
    if found.table is not None:
        out += _table(found, found.table, width)
    elif found.kind == "learned":
        out += folded(
            "A learned table, added to the embeddings; its numbers are in the weights, which are "
            "not at hand. Scores do not depend on the distance alone.",
            width,
        )
    if found.without:
        told = (
            f"Layers {written(found.without)} have no positions: nothing but the mask tells places "
            "apart."
        )
        out += [*([""] if out else []), *folded(told, width)]
    return out


def _rotary(found: Positions, one: Rotary, width: int | None) -> list[str]:
    scaled = one.scaling != "none"
    rows = [
        ("layers", written(one.layers)),
        ("rotary", f"{one.dim} of {one.head_dim} numbers a head turn, in pairs of {one.layout}"),
        ("theta", f"{one.theta:,.15g}"),
        ("scaling", one.scaling + f", sines and cosines times {one.amplitude:.4g}" * scaled),
        ("context", f"{found.context:,}"),
        ("turn less than once", f"{one.never} of {len(one.pairs)} pairs"),
        ("distance alone", _deviation(one.deviation, found.checked)),
    ]
    kept = sorted({round(at * (len(one.pairs) - 1) / (_SHOWN - 1)) for at in range(_SHOWN)})
    chosen = one.pairs if len(one.pairs) <= _SHOWN else [one.pairs[at] for at in kept]
    cells = [
        (
            str(pair.index),
            f"{pair.radians:.6g}",
            *([f"{pair.trained:,.1f}"] if scaled else []),
            f"{pair.wavelength:,.1f}",
            f"{pair.turns:,.2f}",
        )
        for pair in chosen
    ]
    header = ("pair", "radians a token", *["unscaled turn"] * scaled, "tokens a turn", "turns")
    out = [*pairs(rows, width), "", *table(header, cells, width, left=())]
    if len(chosen) < len(one.pairs):
        left_out = f"{len(one.pairs) - len(chosen)} pairs between are left out; --json has all"
        out += folded(left_out, width)
    return out


def _deviation(value: float, checked: int) -> str:
    verdict = "holds" if value < 1e-3 else "holds only roughly"
    return (
        f"{verdict}: scores of unit vectors at the same distance differ by at most {value:.1e} in "
        f"the first {checked:,} positions"
    )


def _slopes(found: Positions, one: Slopes, width: int | None) -> list[str]:
    verdict = "holds" if one.deviation < 1e-3 else "holds only roughly, by rounding"
    rows = [
        ("ALiBi", "a head's score loses its slope with each position of distance"),
        (
            "distance alone",
            f"{verdict}: what is added at the same distance differs by at most {one.deviation:.1e} "
            f"in the first {found.checked:,} positions",
        ),
    ]
    cells = [
        (str(head), f"{slope:.6f}", f"{1 / slope:,.1f}") for head, slope in enumerate(one.slopes)
    ]
    header = ("head", "slope", "tokens for 1 less")
    return [*pairs(rows, width), "", *table(header, cells, width, left=())]


def _table(found: Positions, one: Table, width: int | None) -> list[str]:
    low, mean, high = one.lengths
    rows = [
        (found.kind, f"a table of {one.rows:,} rows, added to the embeddings"),
        ("lengths", f"{low:.3f} to {high:.3f}, {mean:.3f} on average"),
        (
            "distance alone",
            "does not hold: a score mixes tokens with places. Two made tokens at the same distance "
            f"differ by up to {one.deviation:.2f} standard deviations of all their scores",
        ),
    ]
    cells = [
        (str(like.distance), f"{like.least:+.3f}", f"{like.mean:+.3f}", f"{like.most:+.3f}")
        for like in one.likeness
    ]
    header = ("rows apart", "least cosine", "mean", "most")
    return [*pairs(rows, width), "", *table(header, cells, width, left=())]


def _pictures(found: Positions) -> list[Svg]:
    out = []
    for one in found.rotary:
        title = f"tokens a turn, layers {written(one.layers)}"
        series = [
            ("tokens a turn", [(float(p.index), math.log10(p.wavelength)) for p in one.pairs])
        ]
        if one.scaling != "none":
            trained = [(float(p.index), math.log10(p.trained)) for p in one.pairs]
            series.append(("without scaling", trained))
        level = math.log10(found.context)
        series.append(("context", [(0.0, level), (float(len(one.pairs) - 1), level)]))
        out.append(lines(title, series, x="pair", y="log10 of tokens"))
    if found.slopes is not None:
        rows = [(f"head {at}", one, f"{one:.5f}") for at, one in enumerate(found.slopes.slopes)]
        out.append(bars("ALiBi slopes", rows))
    if found.table is not None:
        points = [(float(one.distance), one.mean) for one in found.table.likeness]
        out.append(lines("likeness of rows", [("mean cosine", points)], x="rows apart", y="cosine"))
    return out


DRAWING = Drawing(compute=_compute, lines=_lines, pictures=_pictures)
