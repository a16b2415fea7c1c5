"""The cost of a token by position, drawn in characters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llmcli.bench.summary import ArmCurve

_SIGNS = ("●", "○", "▲", "△", "■", "□", "◆", "◇")
_ASCII = ("o", "x", "+", "*", "#", "@", "%", "&")
_HEIGHT = 12
_LEAST_WIDTH = 30


def signs_needed(count: int) -> str:
    return "".join(_SIGNS[:count]) + "│└─"


def plot(found: Sequence[ArmCurve], width: int, *, ascii_only: bool) -> list[str]:
    """Points of every arm over milliseconds and tokens; later arms are drawn over earlier ones.

    Nothing where no arm has points.
    """
    curves = [one for one in found if one.points]
    if not curves:
        return []
    signs = _ASCII if ascii_only else _SIGNS
    bar, corner, line = ("|", "+", "-") if ascii_only else ("│", "└", "─")
    most = max(seconds for one in curves for _, seconds in _trimmed(one)) * 1e3
    first = min(position for one in curves for position, _ in one.points)
    last = max(position for one in curves for position, _ in one.points)
    label = len(f"{most:.1f}")
    wide = max(_LEAST_WIDTH, min(width, 100)) - label - 2
    grid = [[" "] * wide for _ in range(_HEIGHT)]
    for one, sign in zip(curves, signs, strict=False):
        for position, seconds in one.points:
            column = round((position - first) / max(1, last - first) * (wide - 1))
            row = round(seconds * 1e3 / most * (_HEIGHT - 1)) if most else 0
            # What lies far above the rest is drawn at the top edge.
            grid[min(row, _HEIGHT - 1)][column] = sign
    rows = []
    for at in range(_HEIGHT - 1, -1, -1):
        mark = f"{most * at / (_HEIGHT - 1):.1f}" if at in (0, _HEIGHT // 2, _HEIGHT - 1) else ""
        rows.append(f"{mark:>{label}} {bar}" + "".join(grid[at]).rstrip())
    rows.append(" " * (label + 1) + corner + line * wide)
    rows.append(" " * (label + 2) + f"{first}{last:>{wide - len(str(first))}}")
    named = [
        f"{sign} {one.arm}" + (f" ({one.rows} rows)" if one.rows > 1 else "")
        for one, sign in zip(curves, signs, strict=False)
    ]
    return [f"ms a token, by tokens before it:  {'  '.join(named)}", *rows]


def _trimmed(one: ArmCurve) -> list[tuple[int, float]]:
    """Without the slowest hundredth, so that one hiccup does not flatten the picture."""
    by_time = sorted(one.points, key=lambda point: point[1])
    return by_time[: max(1, len(by_time) - len(by_time) // 50)]
