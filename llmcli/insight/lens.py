"""The logit lens: what the model would say, were each layer the last (nostalgebraist, 2020).

The residual stream after a layer goes through the model's own final norm and head. Must not know
terminals.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from llmcli.generation.finite import require_finite
from llmcli.insight.watching import OnProgress
from llmcli.model import Decoder
from llmcli.model.taps import Site, Tap, tapped

# Rows of logits in memory at once; a vocabulary may have 256,000 entries.
_ROWS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """The likeliest token at one place, and how the token that the model ends with does there.

    `end_rank` 1 is the likeliest.
    """

    id: int
    token: str
    prob: float
    end_prob: float
    end_rank: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LensRow:
    """`layer` None is the embedding, before any layer; cells stand in the order of positions."""

    layer: int | None
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lens:
    """`inputs` are the tokens at the positions; a cell speaks of the token after its own."""

    positions: tuple[int, ...]
    inputs: tuple[str, ...]
    rows: tuple[LensRow, ...]


@torch.inference_mode()
def look(
    decoder: Decoder,
    ids: Tensor,
    *,
    positions: Sequence[int],
    name: Callable[[int], str],
    on_progress: OnProgress | None = None,
) -> Lens:
    """For ids [1,T]; `name` gives a token's text. Streams are dropped as soon as they are read.

    Raises GenerationError for logits that are not finite.
    """
    at = torch.tensor(list(positions), device=decoder.device)
    ids = ids[:, : max(positions) + 1]
    streams = decoder.hidden(ids)[0, at]
    ends: list[int] = []
    for start in range(0, len(at), _ROWS):
        logits = decoder.unembed(streams[start : start + _ROWS])
        require_finite(decoder, ids, logits)
        ends += logits.argmax(-1).tolist()
    rows: list[LensRow] = []

    def read(layer: int | None) -> Tap:
        def tap(stream: Tensor) -> None:
            cells = _cells(decoder, stream[0, at], ends, name)
            rows.append(LensRow(layer=layer, cells=cells))
            if on_progress is not None:
                on_progress(len(rows), decoder.spec.num_layers + 1)

        return tap

    taps = {Site("layer_out", layer): read(layer) for layer in range(decoder.spec.num_layers)}
    with tapped(decoder, {Site("layer_in", 0): read(None), **taps}):
        decoder.hidden(ids)
    return Lens(
        positions=tuple(positions),
        inputs=tuple(name(int(ids[0, position])) for position in positions),
        rows=tuple(rows),
    )


def _cells(
    decoder: Decoder, streams: Tensor, ends: Sequence[int], name: Callable[[int], str]
) -> tuple[Cell, ...]:
    """Of streams [P,C], a cell a row."""
    cells: list[Cell] = []
    for start in range(0, len(ends), _ROWS):
        logits = decoder.unembed(streams[start : start + _ROWS])
        probs = logits.to(torch.promote_types(logits.dtype, torch.float32)).softmax(-1)
        end = torch.tensor(ends[start : start + _ROWS], device=logits.device)[:, None]
        end_logits = logits.gather(-1, end)
        found = zip(
            probs.argmax(-1).tolist(),
            probs.amax(-1).tolist(),
            probs.gather(-1, end)[:, 0].tolist(),
            ((logits > end_logits).sum(-1) + 1).tolist(),
            strict=True,
        )
        cells += [
            Cell(id=id_, token=name(id_), prob=prob, end_prob=end_prob, end_rank=rank)
            for id_, prob, end_prob, rank in found
        ]
    return tuple(cells)
