"""The superposition view: a histogram of angles beside chance, and what the bounds allow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmcli.checkpoint.escape import printable
from llmcli.cli.columns import folded, pairs, table
from llmcli.cli.inspecting.asked import Asked
from llmcli.cli.inspecting.drawing import Drawing
from llmcli.cli.inspecting.subject import Subject
from llmcli.cli.inspecting.svg import Svg, lines
from llmcli.errors import UsageError
from llmcli.insight.bounds import check_index
from llmcli.plurals import counted

if TYPE_CHECKING:
    from llmcli.insight.superposition import Bin, Superposition, What

_BAR, _LEFT = 30, 25  # columns of a bar at most, and in front of it
# Bins that are empty on both sides, to this share, are not shown.
_LEAST = 5e-5
_MOST_BINS = 30


def _compute(subject: Subject, asked: Asked) -> Superposition:
    what, spec = _what(asked.what or "embedding"), subject.facts.spec
    layer = asked.layer
    if what.startswith("mlp"):
        layer = spec.num_layers // 2 if layer is None else layer
        check_index("--layer", layer, spec.num_layers, "layers")
    elif layer is not None:
        raise UsageError(f"--layer is not for --what {what}", hint="leave --layer out")
    decoder = subject.engine.loaded.decoder
    from llmcli.insight.superposition import measure

    return measure(decoder, what, layer=layer)


def _what(text: str) -> What:
    for known in ("embedding", "unembedding", "mlp-in", "mlp-out"):
        if text == known:
            return known
    raise UsageError(
        f"--what {printable(repr(text), 60)} is none of embedding, unembedding, mlp-in, mlp-out",
        hint="mlp-in are the directions that neurons read, mlp-out those that they write",
    )


def _lines(found: Superposition, width: int | None) -> list[str]:
    where = "" if found.layer is None else f" of layer {found.layer}"
    all_ = found.sampled == found.rows - found.zero
    drawn = "all of them" if all_ else f"{found.sampled:,} of them, drawn with seed {found.seed}"
    rows = [
        ("directions", f"{found.rows:,} of {found.what}{where}, {found.dim:,} wide"),
        ("compared", f"{drawn}: {counted(found.pairs, 'pair')}"),
        ("within 89-91 degrees", f"{_percent(found.near)}; random {_percent(found.random_near)}"),
        ("mean angle", f"{found.mean:.2f} degrees; random 90.00"),
        ("off 90, r.m.s.", f"{found.deviation:.2f} degrees; random {found.random_deviation:.2f}"),
    ]
    if found.zero:
        rows.append(("left out", f"{counted(found.zero, 'row')} of zeros"))
    bound = (
        f"How many vectors of {found.dim:,} numbers surely fit when angles may be a little off 90: "
        "at least as many as there are numbers, which can be at right angles; by the "
        "Johnson-Lindenstrauss lemma with the constants of Dasgupta and Gupta (2003), applied to "
        "orthonormal vectors; and by a union bound over spherical caps (Ball 1997, lemma 2.2)."
    )
    allowed = [
        (
            f"{90 - one.off}-{90 + one.off} degrees",
            f"{found.dim:,}",
            _count(one.lemma),
            _count(one.caps),
        )
        for one in found.room
    ]
    return [
        *pairs(rows, width),
        "",
        *_histogram(found, width),
        "",
        *folded(bound, width),
        "",
        *table(("all angles within", "orthogonal", "lemma", "caps"), allowed, width),
    ]


def _histogram(found: Superposition, width: int | None) -> list[str]:
    """Bars of what was found; a mark stands where random directions would end."""
    shown, most = _shown(found.bins), _BAR
    if width is not None:
        most = max(1, min(_BAR, width - _LEFT - 1))
    top = max((max(share, random) for _, _, share, random in shown), default=1.0) or 1.0
    out = ["degrees   share  random"]
    for low, high, share, random in shown:
        bar = "#" * round(most * share / top)
        mark = round(most * random / top)
        drawn = f"{bar:<{most + 1}}"
        drawn = drawn[:mark] + "|" + drawn[mark + 1 :]
        span = f"{low}-{high}"
        out.append(
            f"{span:<7}  {_percent(share):>6}  {_percent(random):>6}  {drawn.rstrip()}".rstrip()
        )
    return [*out, "# found, | random"]


def _shown(bins: tuple[Bin, ...]) -> list[tuple[int, int, float, float]]:
    full = [one for one in bins if max(one.share, one.random) >= _LEAST]
    low, high = full[0].low, full[-1].high
    step = 1 if high - low <= _MOST_BINS else 5
    low, high = low // step * step, -(-high // step) * step
    out = []
    for start in range(low, high, step):
        part = bins[start : start + step]
        shares = sum(one.share for one in part), sum(one.random for one in part)
        out.append((start, start + step, *shares))
    return out


def _pictures(found: Superposition) -> list[Svg]:
    where = "" if found.layer is None else f" of layer {found.layer}"
    series = [
        ("found", [(one.low + 0.5, 100 * one.share) for one in found.bins]),
        ("random", [(one.low + 0.5, 100 * one.random) for one in found.bins]),
    ]
    title = f"angles between directions: {found.what}{where}"
    return [lines(title, series, x="degrees", y="% of pairs")]


def _percent(share: float) -> str:
    return f"{100 * share:.2f}%"


def _count(log10: float) -> str:
    return f"{int(10**log10):,}" if log10 < 6 else f"10^{log10:.1f}"


DRAWING = Drawing(compute=_compute, lines=_lines, pictures=_pictures)
