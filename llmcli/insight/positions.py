"""Positions: how a decoder tells places apart, and whether its scores depend on distance alone.

Everything but a learned table follows from the spec. Must not know terminals or files.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from llmcli.insight.ranges import alike
from llmcli.model.embedding import sinusoids
from llmcli.model.masks import alibi_bias, alibi_slopes
from llmcli.model.rope import RotaryTable, attention_factor, inverse_frequencies, make_rotate
from llmcli.spec import Alibi, DecoderSpec, Learned, Rope, Sinusoidal

# Tables are built up to here, and deviations looked for.
_CHECKED = 32768
_DISTANCES = (0, 1, 2, 4, 8, 16, 64, 256)
_ROWS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two numbers of a query or key that turn together.

    `radians` is the angle from one position to the next, `wavelength` the positions of a whole
    turn, `trained` that without the context scaling, `turns` those in the context.
    """

    index: int
    radians: float
    wavelength: float
    trained: float
    turns: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotary:
    """The table of some layers; `never` pairs do not turn once in the context.

    `amplitude` multiplies sines and cosines. `deviation` is the largest difference between scores
    of one query and key, of unit length, at the same distance in several places.
    """

    layers: tuple[int, ...]
    theta: float
    dim: int
    head_dim: int
    layout: str
    scaling: str
    amplitude: float
    pairs: tuple[Pair, ...]
    never: int
    deviation: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Likeness:
    """The cosine between rows of a table that are `distance` apart: least, mean, most."""

    distance: int
    least: float
    mean: float
    most: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows that are added to embeddings: lengths, and how alike rows are by distance.

    `deviation` compares, at the same distance in several places, scores of two made tokens with
    these rows added, in units of their standard deviation.
    """

    rows: int
    lengths: tuple[float, float, float]
    likeness: tuple[Likeness, ...]
    deviation: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Slopes:
    """ALiBi: what a head's score loses with each position of distance.

    `deviation` is the largest difference of what is added at the same distance in several places.
    """

    slopes: tuple[float, ...]
    deviation: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Positions:
    """`kind` is rotary, learned, sinusoidal, alibi or none; `checked` positions were compared.

    `without` are layers in which nothing but the mask tells places apart, the recurrent aside.
    """

    kind: str
    context: int
    checked: int
    rotary: tuple[Rotary, ...]
    without: tuple[int, ...]
    table: Table | None
    slopes: Slopes | None


@torch.inference_mode()
def measure_positions(
    spec: DecoderSpec, *, context: int, learned: Tensor | None = None
) -> Positions:
    """For texts of `context` tokens; `learned` is the table's rows, without its offset rows."""
    checked = min(context, _CHECKED)
    places, table = spec.positions, None
    if isinstance(places, Learned) and learned is not None:
        table = _table(learned.to("cpu", torch.float64))
    elif isinstance(places, Sinusoidal):
        at = torch.arange(min(checked, _ROWS)) + places.offset
        table = _table(sinusoids(at, spec.hidden_size, torch.float64))
    groups = alike(
        layer.rope if layer.mixer == "attention" else "recurrent" for layer in spec.layers
    )
    rotary = tuple(
        _rotary(spec, rope, layers, context=context, checked=checked)
        for rope, layers in groups.items()
        if isinstance(rope, Rope)
    )
    kind = {Learned: "learned", Sinusoidal: "sinusoidal", Alibi: "alibi"}.get(type(places), "none")
    return Positions(
        kind="rotary" if rotary and kind == "none" else kind,
        context=context,
        checked=checked,
        rotary=rotary,
        without=groups.get(None, ()) if places is None else (),
        table=table,
        slopes=_slopes(spec, places, checked) if isinstance(places, Alibi) else None,
    )


def _rotary(
    spec: DecoderSpec, rope: Rope, layers: tuple[int, ...], *, context: int, checked: int
) -> Rotary:
    now = inverse_frequencies(rope, rope.regime(context, context)).double()
    plain = inverse_frequencies(Rope(theta=rope.theta, dim=rope.dim)).double()
    turns = (now * context / (2 * math.pi)).tolist()
    pairs = tuple(
        Pair(
            index=at,
            radians=angle,
            wavelength=2 * math.pi / angle,
            trained=2 * math.pi / before,
            turns=turns[at],
        )
        for at, (angle, before) in enumerate(zip(now.tolist(), plain.tolist(), strict=True))
    )
    scaling = "none" if rope.scaling is None else type(rope.scaling).__name__
    return Rotary(
        layers=layers,
        theta=rope.theta,
        dim=rope.dim,
        head_dim=spec.head_dim,
        layout="neighbours" if rope.interleaved else "halves",
        scaling=scaling.removesuffix("Scaling").lower(),
        amplitude=attention_factor(rope),
        pairs=pairs,
        never=sum(one.turns < 1 for one in pairs),
        deviation=_rotary_deviation(rope, rope.regime(context, context), checked),
    )


def _rotary_deviation(rope: Rope, regime: int, checked: int) -> float:
    """With the decoder's own tables and rotation, the products taken in float64."""
    generator = torch.Generator().manual_seed(0)
    q, k = torch.nn.functional.normalize(
        torch.randn(2, rope.dim, generator=generator, dtype=torch.float64), dim=-1
    )
    table, rotate = RotaryTable(rope), make_rotate(rope, rope.dim)

    def turned(x: Tensor, at: Tensor) -> Tensor:
        cos, sin = table.at(at, checked, regime, torch.float64)
        return rotate(x.expand(1, 1, len(at), -1), cos, sin)[0, 0]

    worst = 0.0
    for distance, starts in _placed(checked):
        scores = (turned(q, starts + distance) * turned(k, starts)).sum(-1)
        worst = max(worst, _spread(scores))
    return worst


def _slopes(spec: DecoderSpec, alibi: Alibi, checked: int) -> Slopes:
    bias = alibi_bias(
        alibi,
        torch.arange(checked),
        num_heads=spec.num_heads,
        scale=spec.attn_scale,
        dtype=torch.float32,
    )[:, 0]  # [H,S]
    worst = max(
        _spread((bias[:, starts + distance] - bias[:, starts]).double())
        for distance, starts in _placed(checked)
    )
    factor = spec.attn_scale if alibi.scaled else 1.0
    slopes = tuple(slope * factor for slope in alibi_slopes(spec.num_heads))
    return Slopes(slopes=slopes, deviation=worst)


def _table(rows: Tensor) -> Table:
    """rows [P,C] in float64."""
    lengths = torch.linalg.vector_norm(rows, dim=1)
    unit = torch.nn.functional.normalize(rows, dim=1)
    likeness = []
    for distance in _DISTANCES[1:]:
        if distance < len(rows):
            cosines = (unit[distance:] * unit[:-distance]).sum(-1)
            least, mean, most = (
                float(one) for one in (cosines.min(), cosines.mean(), cosines.max())
            )
            likeness.append(Likeness(distance=distance, least=least, mean=mean, most=most))
    generator = torch.Generator().manual_seed(0)
    size = rows.square().mean().sqrt()
    a, b = torch.randn(2, rows.shape[1], generator=generator, dtype=torch.float64) * size
    groups = [
        ((a + rows[starts + distance]) * (b + rows[starts])).sum(-1)
        for distance, starts in _placed(len(rows))
    ]
    std = float(torch.cat(groups).std()) or 1.0
    return Table(
        rows=len(rows),
        lengths=(float(lengths.min()), float(lengths.mean()), float(lengths.max())),
        likeness=tuple(likeness),
        deviation=max(_spread(one) for one in groups) / std,
    )


def _placed(count: int) -> list[tuple[int, Tensor]]:
    """Distances, each with the places below `count` at which it is looked at."""
    found = []
    for distance in _DISTANCES:
        if (room := count - distance) >= 2:
            found.append((distance, torch.linspace(0, room - 1, min(room, 64)).long()))
    return found


def _spread(values: Tensor) -> float:
    """The most that values in the last dimension differ."""
    return float((values.amax(-1) - values.amin(-1)).max())
