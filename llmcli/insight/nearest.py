"""Nearest tokens: which rows of the embedding, and of the unembedding, point the same way.

Must not know terminals.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from llmcli.insight.directions import check_directions
from llmcli.model import Decoder
from llmcli.model.linear import Weighted

# Rows in memory at once, in the wider dtype.
_ROWS = 16384


@dataclass(frozen=True, slots=True)
class Near:
    """A token and the cosine of the angle to what was asked about."""

    id: int
    token: str
    cosine: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Nearest:
    """In one matrix; `zero` tells that there is no direction to compare with."""

    matrix: str
    near: tuple[Near, ...]
    zero: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbors:
    """Of one token; `length` is that of its embedding row. `tied` has one matrix for both."""

    id: int
    token: str
    length: float
    tied: bool
    found: tuple[Nearest, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Analogy:
    """b - a + c, of rows of unit length; a, b and c are left out of `found`.

    `inputs` are these three, with how near each is in the first matrix.
    """

    inputs: tuple[Near, ...]
    tied: bool
    found: tuple[Nearest, ...]


@torch.inference_mode()
def neighbors(decoder: Decoder, id_: int, *, name: Callable[[int], str], top: int) -> Neighbors:
    """The `top` nearest tokens, itself left out."""
    row = decoder.embed_tokens.rows(torch.tensor(id_, device=decoder.device))
    return Neighbors(
        id=id_,
        token=name(id_),
        length=float(torch.linalg.vector_norm(row.double())),
        tied=decoder.lm_head.tied,
        found=tuple(
            _nearest(matrix, title, _unit(matrix[id_]), name=name, top=top, without={id_})
            for title, matrix in _matrices(decoder)
        ),
    )


@torch.inference_mode()
def analogy(
    decoder: Decoder, ids: tuple[int, int, int], *, name: Callable[[int], str], top: int
) -> Analogy:
    """What is to the third as the second is to the first (arXiv 1301.3781)."""
    found = []
    inputs: list[float] = []
    for title, matrix in _matrices(decoder):
        a, b, c = (_unit(matrix[id_]) for id_ in ids)
        goal = _unit(b - a + c)
        found.append(_nearest(matrix, title, goal, name=name, top=top, without=set(ids)))
        inputs = inputs or [float(one @ goal) for one in (a, b, c)]
    near = [Near(id_, name(id_), cosine) for id_, cosine in zip(ids, inputs, strict=True)]
    return Analogy(inputs=tuple(near), tied=decoder.lm_head.tied, found=tuple(found))


def _matrices(decoder: Decoder) -> Iterator[tuple[str, Tensor]]:
    """Raises CheckpointError where one is not finite."""
    found: dict[str, Weighted] = {"embedding": decoder.embed_tokens}
    if not decoder.lm_head.tied:
        found["unembedding"] = decoder.lm_head
    for title, owner in found.items():
        matrix = owner.matrix()
        check_directions(matrix, title)
        yield title, matrix


def _nearest(
    matrix: Tensor,
    title: str,
    goal: Tensor,
    *,
    name: Callable[[int], str],
    top: int,
    without: Collection[int],
) -> Nearest:
    if not goal.any():
        return Nearest(matrix=title, near=(), zero=True)
    cosines = torch.cat([_unit(part) @ goal for part in torch.split(matrix, _ROWS)])
    cosines[sorted(without)] = float("-inf")
    best = cosines.topk(min(top, len(cosines) - len(without)))
    pairs: Sequence[tuple[int, float]] = list(
        zip(best.indices.tolist(), best.values.tolist(), strict=True)
    )
    return Nearest(matrix=title, near=tuple(Near(id_, name(id_), cos) for id_, cos in pairs))


def _unit(rows: Tensor) -> Tensor:
    """Rows of unit length, float32 at least, on the CPU; a row of zeros stays one."""
    wide = rows.to("cpu", torch.promote_types(rows.dtype, torch.float32))
    return torch.nn.functional.normalize(wide, dim=-1, eps=torch.finfo(wide.dtype).tiny)
