"""How much memory the kernels need besides weights, cache and what they are lent: float32 rows by
field of a job (kernels/layout.py).

Arithmetic alone, so that a plan can say it before anything is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import lcm

from llmcli.kernels import layout

# A row ends where a cache line does.
_LINE = 16
_LEAST_REACH = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Of a decoder. So many columns as `unit` are read together at most; `scratch` is the most
    that scratch_of says of its matrices.
    """

    hidden: int
    inner: int
    heads: int
    kv_heads: int
    head_dim: int
    unit: int
    scratch: int


def reach(keys: int) -> int:
    """For so many keys there is room if so many are seen: not a little more at each step."""
    return max(_LEAST_REACH, 1 << keys.bit_length())


def unit_of(group: int | None) -> int:
    """How many columns are read together where so many share a scale, if any share one."""
    return lcm(layout.CHUNK, group or 1)


def run_of(columns: int, unit: int) -> int:
    """How many columns of a matrix are laid into a panel at a time: runs of about one length."""
    units = -(-columns // unit)
    runs = -(-units // max(1, layout.RUN_OF_COLUMNS // unit))
    return -(-units // runs) * unit


def scratch_of(columns: int, unit: int) -> int:
    """Floats that a thread needs for itself to multiply with a matrix."""
    panel = layout.PANEL * (run_of(columns, unit) + 1 + layout.AT_ONCE)
    # The other use: the sum of each group of x, of which there are no more than columns.
    return max(panel, columns + unit)


def rooms(sizes: Sizes, *, team: int, tokens: int, keys: int) -> dict[int, tuple[int, int]]:
    """Rows and their width by field, for `tokens` at once and at most `keys` that one sees."""
    width, unit = sizes.heads * sizes.head_dim, sizes.unit
    # One token needs these for every thread, and several for every token.
    each = max(team, tokens)
    together = layout.TOKENS_TOGETHER * layout.KEYS_TOGETHER
    panels = layout.KEYS_TOGETHER * sizes.head_dim + layout.PANEL
    group = sizes.heads // sizes.kv_heads
    asked = {
        layout.QKV: (tokens, width + 2 * sizes.kv_heads * sizes.head_dim),
        layout.PART: (tokens, sizes.hidden),
        layout.GATED_INNER: (tokens, sizes.inner + unit),
        layout.UP_INNER: (tokens, sizes.inner + unit),
        layout.INNER_OUT: (tokens, sizes.inner + unit),
        layout.X: (team, sizes.hidden),
        layout.NORMED: (each, sizes.hidden + unit),
        layout.QUERIES: (each, width + unit),
        layout.ATTENDED: (each, width + unit),
        layout.PEAKS: (each, sizes.heads),
        layout.WEIGHTS: (each, sizes.heads),
        layout.SCORES: (team, max(keys * group, together)),
        layout.SCRATCH: (team, max(sizes.scratch, panels)),
    }
    return {int(field): (rows, -(-wide // _LINE) * _LINE) for field, (rows, wide) in asked.items()}


def room_bytes(made: Mapping[int, tuple[int, int]]) -> int:
    """Of all rows."""
    return sum(4 * rows * width for rows, width in made.values())
