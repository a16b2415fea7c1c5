"""What every head attends to: scores of each head, small pictures of all, one head in detail.

Weights are summed up a layer and some rows at a time, as a long prompt's would not fit.
Must not know terminals.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from llmcli.generation.finite import require_finite
from llmcli.insight.watching import OnProgress
from llmcli.model import Decoder
from llmcli.model.taps import WatchWeights, attending, tapped

# A head's picture has at most so many squares a side.
_SIDE = 32
# Random tokens of the repeated sequence that induction is measured on.
_PROBE = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadScores:
    """Of one head, as means over the prompt's tokens but the first (None where it has no more).

    `entropy_bits` is that of the weights, a sink's part counted as one more key. `first` is the
    weight on the first token, `previous` that on the token before. `induction` is measured on a
    random sequence that comes twice: the mean weight, in its second run, on the token that came
    after the same token in the first (Olsson et al., arXiv 2209.11895).
    """

    layer: int
    head: int
    entropy_bits: float | None
    first: float | None
    previous: float | None
    induction: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadMap:
    """`weights[q][k]` is the mean weight of queries of stretch q on all keys of stretch k.

    A stretch is a token, or several where the prompt has more than the picture squares.
    """

    layer: int
    head: int
    weights: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadDetail:
    """`weights[q][k]`; a row sums to 1, or to less where a learned sink takes a part."""

    layer: int
    head: int
    weights: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """`without` are the layers that have no attention weights, with what they have instead.

    `shown` is how many heads a drawing names for each score.
    """

    tokens: tuple[str, ...]
    heads: tuple[HeadScores, ...]
    maps: tuple[HeadMap, ...]
    detail: HeadDetail | None
    without: dict[int, str]
    shown: int


@torch.inference_mode()
def watch_attention(
    decoder: Decoder,
    ids: Tensor,
    *,
    name: Callable[[int], str],
    layers: Collection[int] | None = None,
    detail: tuple[int, int] | None = None,
    special_ids: Collection[int] = (),
    shown: int = 5,
    on_progress: OnProgress | None = None,
) -> Attention:
    """For ids [1,T] and these layers (None: all); `detail` is the layer and head shown whole.

    `special_ids` are kept out of the random sequence. `name` gives a token's text. Raises
    GenerationError for logits that are not finite.
    """
    chosen = range(decoder.spec.num_layers) if layers is None else sorted(layers)
    looking = [layer for layer in chosen if attending(decoder, layer) is not None]
    probe = _probe(decoder, int(ids[0, 0]), special_ids)
    count = _Count(len(looking) * (ids.shape[1] + probe.shape[1]), on_progress)
    sums = {layer: _Sums(decoder.spec.num_heads, ids.shape[1]) for layer in looking}
    whole: list[Tensor] = []
    watchers: dict[int, WatchWeights] = {
        layer: _both(sums[layer].add, count.add) for layer in looking
    }
    if detail is not None and detail[0] in sums:
        watchers[detail[0]] = _both(watchers[detail[0]], _keep(detail[1], whole))
    with tapped(decoder, {}, watchers):
        require_finite(decoder, ids, decoder(ids))
    induction = _induction(decoder, probe, looking, count)
    return Attention(
        tokens=tuple(name(id_) for id_ in ids[0].tolist()),
        heads=tuple(
            one for layer in looking for one in sums[layer].scores(layer, induction.get(layer))
        ),
        maps=tuple(one for layer in looking for one in sums[layer].maps(layer)),
        detail=None
        if detail is None or not whole
        else HeadDetail(layer=detail[0], head=detail[1], weights=_rows(torch.cat(whole))),
        without={
            layer: decoder.spec.layers[layer].mixer.replace("_", " ")
            for layer in chosen
            if layer not in sums
        },
        shown=shown,
    )


class _Sums:
    """Running sums over the queries of one layer, a row a head."""

    def __init__(self, heads: int, tokens: int) -> None:
        side = min(tokens, _SIDE)
        self._tokens = tokens
        self._stretch = torch.arange(tokens) * side // tokens
        self._pooled = torch.zeros(heads, side, side, dtype=torch.float64)
        self._entropy, self._first, self._previous = torch.zeros(3, heads, dtype=torch.float64)

    def add(self, start: int, weights: Tensor) -> None:
        """Weights [1,H,rows,S] of the queries from `start` on."""
        w = weights[0].to("cpu", torch.promote_types(weights.dtype, torch.float32))
        queries = torch.arange(start, start + w.shape[1])
        by_key = torch.zeros(*w.shape[:2], self._pooled.shape[2], dtype=w.dtype)
        by_key.index_add_(2, self._stretch, w)
        self._pooled.index_add_(1, self._stretch[queries], by_key.double())
        later = queries > 0
        w, queries = w[:, later], queries[later]
        rest = (1 - w.sum(-1)).clamp(min=0)
        entropy = torch.special.entr(w).sum(-1) + torch.special.entr(rest)
        self._entropy += entropy.sum(-1) / math.log(2)
        self._first += w[:, :, 0].sum(-1)
        self._previous += w[:, torch.arange(len(queries)), queries - 1].sum(-1)

    def scores(self, layer: int, induction: list[float] | None) -> Iterator[HeadScores]:
        count = self._tokens - 1
        for head in range(len(self._entropy)):
            yield HeadScores(
                layer=layer,
                head=head,
                entropy_bits=float(self._entropy[head]) / count if count else None,
                first=float(self._first[head]) / count if count else None,
                previous=float(self._previous[head]) / count if count else None,
                induction=None if induction is None else induction[head],
            )

    def maps(self, layer: int) -> Iterator[HeadMap]:
        queries = self._stretch.bincount()[:, None]
        for head, pooled in enumerate(self._pooled):
            yield HeadMap(layer=layer, head=head, weights=_rows(pooled / queries))


class _Count:
    """How many rows of weights were seen, for whoever waits."""

    def __init__(self, total: int, on_progress: OnProgress | None) -> None:
        self._done, self._total, self._tell = 0, total, on_progress

    def add(self, _start: int, weights: Tensor) -> None:
        self._done += weights.shape[2]
        if self._tell is not None:
            self._tell(self._done, self._total)


def _probe(decoder: Decoder, first: int, special_ids: Collection[int]) -> Tensor:
    """Ids [1,1+2N]: `first`, then random tokens twice; [1,0] where there is too little room."""
    spec = decoder.spec
    usable = torch.tensor([id_ for id_ in range(spec.vocab_size) if id_ not in set(special_ids)])
    length = min(_PROBE, (spec.context - 1) // 2, len(usable))
    if length < 2:
        return torch.empty(1, 0, dtype=torch.long)
    order = torch.randperm(len(usable), generator=torch.Generator().manual_seed(0))
    run = usable[order[:length]].tolist()
    return torch.tensor([[first, *run, *run]], device=decoder.device)


def _induction(
    decoder: Decoder, ids: Tensor, layers: Collection[int], count: _Count
) -> dict[int, list[float]]:
    """By layer, for each head; nothing where context or vocabulary leave too little room."""
    if not ids.shape[1]:
        return {}
    length = ids.shape[1] // 2
    # The second run's token at q came at q - length, and after it the token at q - length + 1.
    queries = torch.arange(1 + length, 1 + 2 * length)
    found = {layer: torch.zeros(decoder.spec.num_heads, dtype=torch.float64) for layer in layers}

    def watch(total: Tensor) -> WatchWeights:
        def add(start: int, weights: Tensor) -> None:
            w = weights[0].to("cpu", torch.float64)
            rows = queries[(queries >= start) & (queries < start + w.shape[1])]
            total.add_(w[:, rows - start, rows - length + 1].sum(-1))

        return add

    watchers = {layer: _both(watch(total), count.add) for layer, total in found.items()}
    with tapped(decoder, {}, watchers):
        require_finite(decoder, ids, decoder(ids))
    return {layer: (total / length).tolist() for layer, total in found.items()}


def _both(first: WatchWeights, second: WatchWeights) -> WatchWeights:
    def add(start: int, weights: Tensor) -> None:
        first(start, weights)
        second(start, weights)

    return add


def _keep(head: int, whole: list[Tensor]) -> WatchWeights:
    def add(_start: int, weights: Tensor) -> None:
        whole.append(weights[0, head].to("cpu", torch.float32))

    return add


def _rows(matrix: Tensor) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(row) for row in matrix.tolist())
