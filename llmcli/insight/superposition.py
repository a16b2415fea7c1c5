"""Superposition: how close to right angles a model's directions are, against chance and bounds.

Must not know terminals.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Literal, get_args

import torch
from torch import Tensor

from llmcli.errors import UsageError
from llmcli.insight.bounds import check_index
from llmcli.insight.directions import check_directions
from llmcli.model import Decoder
from llmcli.model.block import Block
from llmcli.model.experts import SparseMLP
from llmcli.model.mlp import PlainMLP
from llmcli.plurals import counted

What = Literal["embedding", "unembedding", "mlp-in", "mlp-out"]
WHATS: tuple[What, ...] = get_args(What)
_NAMES = {
    "embedding": "embedding",
    "unembedding": "unembedding",
    "mlp-in": "MLP's first matrix",
    "mlp-out": "MLP's last matrix, turned",
}
# All pairs of so many rows: two million angles.
SAMPLE = 2048
_SEED = 0
_NEAR = (89.0, 91.0)
# Degrees that angles may be off 90.
_OFF = (1, 5, 10, 20, 30)
_STEPS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin:
    """Shares of pairs with an angle in low ... high degrees: found, and of random directions."""

    low: int
    high: int
    share: float
    random: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """How many vectors surely fit with all angles within 90 +- `off` degrees, as log10.

    `lemma` follows from the Johnson-Lindenstrauss lemma with the constants of Dasgupta and Gupta
    (2003); `caps` from a union bound over spherical caps (Ball 1997, lemma 2.2).
    """

    off: int
    lemma: float
    caps: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Superposition:
    """`rows` directions of width `dim`, of which `sampled` were compared, each pair once.

    `zero` rows have no direction and are left out. `near` is the share of angles within one degree
    of 90, and `random_near` that of random directions, which is exact.
    """

    what: str
    layer: int | None
    rows: int
    zero: int
    dim: int
    sampled: int
    seed: int
    pairs: int
    near: float
    random_near: float
    mean: float
    deviation: float
    random_deviation: float
    bins: tuple[Bin, ...]
    room: tuple[Room, ...]


@torch.inference_mode()
def measure(
    decoder: Decoder, what: What, *, layer: int | None = None, sample: int = SAMPLE
) -> Superposition:
    """Angles in degrees between all pairs of `sample` rows drawn with a fixed seed.

    `layer` is that of MLP directions. Raises UsageError for what the decoder does not have, and
    CheckpointError for rows that are not finite.
    """
    rows = _directions(decoder, what, layer)
    check_directions(rows, _NAMES[what])
    wide = torch.promote_types(rows.dtype, torch.float32)
    alive = torch.linalg.vector_norm(rows, dim=1, dtype=wide).nonzero()[:, 0].cpu()
    if rows.shape[1] < 2 or len(alive) < 2:
        raise UsageError(
            f"{counted(len(alive), 'direction')} of width {rows.shape[1]} make no angles",
            hint="try --what",
        )
    chosen = alive
    if len(alive) > sample:
        order = torch.randperm(len(alive), generator=torch.Generator().manual_seed(_SEED))
        chosen = alive[order[:sample].sort().values]
    unit = torch.nn.functional.normalize(
        rows[chosen.to(rows.device)].to("cpu", wide), dim=1, eps=torch.finfo(wide).tiny
    )
    first, second = torch.triu_indices(len(unit), len(unit), 1)
    degrees = (unit @ unit.T)[first, second].clamp(-1, 1).acos().double().rad2deg()
    counts = degrees.floor().clamp(max=179).long().bincount(minlength=180) / len(degrees)
    dim = rows.shape[1]
    off = degrees - 90
    return Superposition(
        what=what,
        layer=layer,
        rows=rows.shape[0],
        zero=rows.shape[0] - len(alive),
        dim=dim,
        sampled=len(chosen),
        seed=_SEED,
        pairs=len(degrees),
        near=float(((degrees >= _NEAR[0]) & (degrees <= _NEAR[1])).double().mean()),
        random_near=random_share(dim, *_NEAR),
        mean=float(degrees.mean()),
        deviation=float(off.square().mean().sqrt()),
        random_deviation=math.sqrt(_second_moment(dim)),
        bins=tuple(
            Bin(low=low, high=low + 1, share=share, random=random_share(dim, low, low + 1))
            for low, share in enumerate(counts.tolist())
        ),
        room=tuple(_room(dim, off) for off in _OFF),
    )


@cache
def random_share(dim: int, low: float, high: float) -> float:
    """The share of angles in low ... high degrees between random directions of `dim` numbers.

    The density of the angle t is proportional to sin(t)^(dim - 2).
    """
    return _integral(dim, low, high, lambda _: 1.0)


@cache
def _second_moment(dim: int) -> float:
    """Of degrees off 90."""
    return sum(_integral(dim, at, at + 1, lambda off: off * off) for at in range(180))


def _integral(dim: int, low: float, high: float, weigh: Callable[[float], float]) -> float:
    """Simpson's rule; the power is taken by logarithms, since it may be below any float."""
    whole = 0.5 * math.log(math.pi) + math.lgamma((dim - 1) / 2) - math.lgamma(dim / 2)
    step = math.radians(high - low) / _STEPS
    total = 0.0
    for at in range(_STEPS + 1):
        degrees = low + (high - low) * at / _STEPS
        sine = math.sin(math.radians(degrees))
        factor = 1 if at in (0, _STEPS) else 4 if at % 2 else 2
        if sine > 0:
            log = (dim - 2) * math.log(sine) - whole
            total += factor * weigh(degrees - 90) * math.exp(log)
        elif dim == 2:
            total += factor * weigh(degrees - 90) * math.exp(-whole)
    return total * step / 3


def _room(dim: int, off: int) -> Room:
    """Of n orthonormal vectors the lemma keeps all squared lengths and distances within 1 +- e.

    Then their cosines are at most 2e / (1 - e).
    """
    cosine = math.sin(math.radians(off))
    e = cosine / (2 + cosine)
    lemma = dim * (e * e / 2 - e**3 / 3) / 4
    # The origin is a point of the lemma's too, as lengths have to be kept.
    lemma = math.log(max(math.exp(lemma) - 1, 1)) if lemma < 30 else lemma
    caps = dim * cosine * cosine / 4
    return Room(off=off, lemma=lemma / math.log(10), caps=caps / math.log(10))


def _directions(decoder: Decoder, what: What, layer: int | None) -> Tensor:
    """[n, dim], as they are stored."""
    if what == "embedding":
        return decoder.embed_tokens.matrix()
    if what == "unembedding":
        if decoder.lm_head.tied:
            raise UsageError(
                "the unembedding is the embedding itself in this checkpoint",
                hint="look at --what embedding",
            )
        return decoder.lm_head.matrix()
    assert layer is not None
    check_index("--layer", layer, decoder.spec.num_layers, "layers")
    block = decoder.layers[layer]
    assert isinstance(block, Block)
    mlps = [block.mlp]
    if isinstance(block.mlp, SparseMLP):
        mlps = [*block.mlp.experts, *([block.mlp.shared] if block.mlp.shared is not None else [])]
    found = []
    for mlp in mlps:
        assert isinstance(mlp, PlainMLP)
        found.append(mlp.up_proj.matrix() if what == "mlp-in" else mlp.down_proj.matrix().T)
    return torch.cat(found)
