"""Logits processors: pure functions from float32 logits [B,V] to logits, in a fixed order.

The order is that of transformers: repetition penalty, temperature, top-k, top-p, min-p. A
filter sets what it cuts to -inf and always keeps the best token.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
from torch import Tensor

from llmcli.generation.params import SamplingParams

# (ids [B,n] seen so far, logits [B,V]) -> logits [B,V]
Processor = Callable[[Tensor, Tensor], Tensor]

_CUT = float("-inf")
# A nucleus nearly always lies within so many candidates; sorting all costs far more.
_CANDIDATES = 1024


def repetition_penalty(penalty: float) -> Processor:
    """Divide positive and multiply negative logits of every id seen (arXiv 1909.05858)."""

    def process(ids: Tensor, logits: Tensor) -> Tensor:
        seen = logits.gather(-1, ids)
        return logits.scatter(-1, ids, torch.where(seen > 0, seen / penalty, seen * penalty))

    return process


def temperature(value: float) -> Processor:
    """Divide by `value`; the best logit is moved to 0 first, so that no quotient overflows."""
    divisor = max(value, sys.float_info.min, torch.finfo(torch.float32).tiny)

    def process(_ids: Tensor, logits: Tensor) -> Tensor:
        return (logits - logits.amax(-1, keepdim=True)) / divisor

    return process


def top_k(count: int) -> Processor:
    """Keep the `count` largest logits, and whatever ties with the last of them."""

    def process(_ids: Tensor, logits: Tensor) -> Tensor:
        if count >= logits.shape[-1]:
            return logits
        least = logits.topk(count).values[..., -1:]
        return logits.masked_fill(logits < least, _CUT)

    return process


def top_p(mass: float) -> Processor:
    """Keep the smallest set of likeliest tokens whose probability reaches `mass` (1904.09751)."""

    def process(_ids: Tensor, logits: Tensor) -> Tensor:
        probs = logits.softmax(-1)
        values, order = _descending(probs, mass)
        # Shifted, not `cumsum - values`, which rounds: .5 + .3 + .1 - .1 falls short of .8.
        cut = torch.zeros_like(values, dtype=torch.bool)
        cut[..., 1:] = values.cumsum(-1)[..., :-1] >= mass
        kept = torch.zeros_like(logits, dtype=torch.bool).scatter(-1, order, ~cut)
        return logits.masked_fill(~kept, _CUT)

    return process


def min_p(fraction: float) -> Processor:
    """Keep tokens at least `fraction` as likely as the best one (arXiv 2407.01082)."""

    def process(_ids: Tensor, logits: Tensor) -> Tensor:
        probs = logits.softmax(-1)
        best = probs.amax(-1, keepdim=True)
        return logits.masked_fill(probs < fraction * best, _CUT)

    return process


def make_processors(params: SamplingParams, *, sampling: bool) -> list[Processor]:
    """The processors that `params` switch on, in order; the filters only where one samples."""
    chain: list[Processor] = []
    if params.repetition_penalty != 1:
        chain.append(repetition_penalty(params.repetition_penalty))
    if not sampling:
        return chain
    if params.temperature != 1:
        chain.append(temperature(params.temperature))
    if params.top_k:
        chain.append(top_k(params.top_k))
    if params.top_p < 1:
        chain.append(top_p(params.top_p))
    if params.min_p:
        chain.append(min_p(params.min_p))
    return chain


def _descending(probs: Tensor, mass: float) -> tuple[Tensor, Tensor]:
    """The largest probabilities and their ids: enough of them to reach `mass`, or all."""
    if probs.device.type == "cpu" and probs.shape[-1] > 2 * _CANDIDATES:
        best = probs.topk(_CANDIDATES)
        if bool((best.values.sum(-1) > mass).all()):
            return best.values, best.indices
    ordered = torch.sort(probs, dim=-1, descending=True, stable=True)
    return ordered.values, ordered.indices
