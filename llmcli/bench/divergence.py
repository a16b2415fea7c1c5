"""How far the next-token distributions of one decoder lie from another's, over a text's ids.

Both read the text window by window, and their logits are held for some positions at a time. Must
not know how the two differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from llmcli.bench.statistics import percentile
from llmcli.errors import GenerationError
from llmcli.model import Decoder

# Logits that a decoder makes at a time: 64 MiB. Each time the whole head is read.
_LOGITS = 1 << 24
# Of these so many become float64 at a time.
_WIDE = 1 << 21


@dataclass(frozen=True, slots=True)
class Window:
    """Ids that are read at once; those behind the first `lead` are to be predicted."""

    ids: tuple[int, ...]
    lead: int

    @property
    def scored(self) -> int:
        return len(self.ids) - self.lead


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """Over all `tokens` that were predicted. The KL divergences are of the whole vocabulary, in
    nats, from the reference to the other; perplexities are infinite above what a float holds.

    `same_top` is the share of positions where both find the same id likeliest.
    """

    tokens: int
    kl_mean: float
    kl_median: float
    kl_p99: float
    kl_max: float
    reference_perplexity: float
    perplexity: float
    same_top: float


def windows(prefix: Sequence[int], body: Sequence[int], most: int) -> list[Window]:
    """`body` in windows of at most `most` ids, about equally long, each behind `prefix`.

    Without a prefix the last id of the window before goes in front, so that every id but the first
    is predicted once. No window where nothing can be.
    """
    lead = max(1, len(prefix))
    start, room = (0 if prefix else 1), most - lead
    total = len(body) - start
    if total < 1 or room < 1:
        return []
    count = -(-total // room)
    ends = [start + total * number // count for number in range(count + 1)]
    return [
        Window((*(prefix or body[first - 1 : first]), *body[first:last]), lead)
        for first, last in pairwise(ends)
    ]


def diverge(
    reference: Decoder,
    other: Decoder,
    text: Sequence[Window],
    *,
    on_progress: Callable[[int, int], None] | None = None,
) -> Divergence:
    """Raises GenerationError where a logit is not finite."""
    total, done = sum(window.scored for window in text), 0
    # Small tensors that live on between large ones that do not would scatter the heap.
    scores = torch.empty(4, total, dtype=torch.float64)
    with torch.inference_mode():
        for window in text:
            for part in _scores(reference, other, window):
                scores[:, done : done + part.shape[1]] = part
                done += part.shape[1]
            if on_progress is not None:
                on_progress(done, total)
    kl, expected, got, same = scores.tolist()
    return Divergence(
        tokens=total,
        kl_mean=sum(kl) / total,
        kl_median=percentile(kl, 50),
        kl_p99=percentile(kl, 99),
        kl_max=max(kl),
        reference_perplexity=_perplexity(expected),
        perplexity=_perplexity(got),
        same_top=sum(same) / total,
    )


def _scores(reference: Decoder, other: Decoder, window: Window) -> Iterator[Tensor]:
    ids = torch.tensor([window.ids])
    first, last = window.lead - 1, len(window.ids) - 1
    streams = [decoder.hidden(ids) for decoder in (reference, other)]
    vocabulary = reference.spec.vocab_size
    held, wide = max(1, _LOGITS // vocabulary), max(1, _WIDE // vocabulary)
    for start in range(first, last, held):
        stop = min(start + held, last)
        pair = [
            decoder.unembed(stream[:, start:stop])[0]
            for decoder, stream in zip((reference, other), streams, strict=True)
        ]
        for at in range(0, stop - start, wide):
            came = ids[0, start + at + 1 : min(start + at + wide, stop) + 1]
            yield _compared(pair[0][at : at + wide], pair[1][at : at + wide], came)


def _compared(ours: Tensor, theirs: Tensor, came: Tensor) -> Tensor:
    """Of logits [N,V] of both and the ids [N] that came [4,N]: the KL divergence, both surprises at
    what came, and whether both find the same id likeliest.
    """
    if not (ours.isfinite().all() and theirs.isfinite().all()):
        raise GenerationError(
            "the logits are not finite, so nothing can be compared",
            hint="the checkpoint is damaged, or its numbers are too large for float32",
        )
    # In float32 the rounding of a logarithm would be as large as a small divergence.
    p, q = (logits.to(torch.float64).log_softmax(-1) for logits in (ours, theirs))
    scores = (
        (p.exp() * (p - q)).sum(-1).clamp_(min=0),
        -p.gather(-1, came[:, None])[:, 0],
        -q.gather(-1, came[:, None])[:, 0],
        (ours.argmax(-1) == theirs.argmax(-1)).to(torch.float64),
    )
    return torch.stack(scores)


def _perplexity(surprises: Sequence[float]) -> float:
    try:
        return math.exp(sum(surprises) / len(surprises))
    except OverflowError:
        return math.inf
