"""Filters: processors that shape or narrow the distribution that is sampled from.

A filter sets what it cuts to -inf and always keeps the best token.
"""

from __future__ import annotations

import sys
from collections.abc import Collection

import torch
from torch import Tensor

from llmcli.generation.processors.base import CUT, Processor

# SmolLM2's likeliest 1024 tokens reach 0.95 in three of four places, 4096 in nearly all.
_CANDIDATES = (1024, 4096)


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
        best = logits.topk(count)
        least = best.values[..., -1:]
        kept = logits >= least
        # Without ties, writing the few that stay is cheaper than masking the many that go.
        if logits.device.type == "cpu" and bool((kept.sum(-1) == count).all()):
            return torch.full_like(logits, CUT).scatter_(-1, best.indices, best.values)
        return logits.masked_fill(~kept, CUT)

    return process


def top_p(mass: float) -> Processor:
    """Keep the smallest set of likeliest tokens whose probability reaches `mass` (1904.09751)."""

    def process(_ids: Tensor, logits: Tensor) -> Tensor:
        probs = logits.softmax(-1)
        return _first_that_reach(mass, logits, probs, -probs)

    return process


def min_p(fraction: float) -> Processor:
    """Keep tokens at least `fraction` as likely as the best one (arXiv 2407.01082)."""

    def process(_ids: Tensor, logits: Tensor) -> Tensor:
        probs = logits.softmax(-1)
        return _above(logits, probs, fraction * probs.amax(-1, keepdim=True))

    return process


def typical_p(mass: float) -> Processor:
    """Keep the tokens whose surprise is nearest the entropy, up to `mass` (arXiv 2202.00666)."""

    def process(_ids: Tensor, logits: Tensor) -> Tensor:
        logprobs = logits.log_softmax(-1)
        probs = logprobs.exp()
        # 0 * -inf is nothing here: a token that was cut adds no surprise.
        entropy = -(probs * logprobs).nan_to_num(0.0).sum(-1, keepdim=True)
        return _first_that_reach(mass, logits, probs, (-logprobs - entropy).abs())

    return process


def top_n_sigma(count: float) -> Processor:
    """Keep logits within `count` standard deviations of the best one (arXiv 2411.07641)."""

    def process(_ids: Tensor, logits: Tensor) -> Tensor:
        finite = logits.isfinite()
        number = finite.sum(-1, keepdim=True)
        mean = logits.masked_fill(~finite, 0).sum(-1, keepdim=True) / number
        spread = (logits - mean).masked_fill(~finite, 0).square().sum(-1, keepdim=True) / number
        least = logits.amax(-1, keepdim=True) - count * spread.sqrt()
        return logits.masked_fill(logits < least, CUT)

    return process


def epsilon_cutoff(least: float) -> Processor:
    """Keep tokens at least `least` likely (arXiv 2210.15191)."""

    def process(_ids: Tensor, logits: Tensor) -> Tensor:
        probs = logits.softmax(-1)
        return _above(logits, probs, torch.full_like(probs[..., :1], least))

    return process


def eta_cutoff(epsilon: float) -> Processor:
    """The same with a bar that falls as the entropy rises (arXiv 2210.15191)."""

    def process(_ids: Tensor, logits: Tensor) -> Tensor:
        logprobs = logits.log_softmax(-1)
        probs = logprobs.exp()
        entropy = -(probs * logprobs).nan_to_num(0.0).sum(-1, keepdim=True)
        return _above(logits, probs, (epsilon**0.5 * torch.exp(-entropy)).clamp(max=epsilon))

    return process


def xtc(
    probability: float,
    threshold: float,
    generator: torch.Generator,
    exempt: Collection[int] = (),
) -> Processor:
    """With some probability, cut all tokens above `threshold` but the least likely of them.

    Exclude top choices (text-generation-webui pull request 6335). Nothing is cut where an id in
    `exempt`, such as the end of the text, would be.
    """
    spared = torch.tensor(sorted(exempt), dtype=torch.long)

    def process(_ids: Tensor, logits: Tensor) -> Tensor:
        if torch.rand(1, generator=generator).item() >= probability:
            return logits
        probs = logits.softmax(-1)
        above = probs >= threshold
        least = probs.masked_fill(~above, 2.0).amin(-1, keepdim=True)
        cut = above & (probs > least)
        hit = cut.index_select(-1, spared.to(logits.device)).any(-1, keepdim=True)
        return logits.masked_fill(cut & ~hit, CUT)

    return process


def _above(logits: Tensor, probs: Tensor, least: Tensor) -> Tensor:
    """Cut what is less likely than `least`, but never the best."""
    return logits.masked_fill((probs < least) & (probs < probs.amax(-1, keepdim=True)), CUT)


def _first_that_reach(mass: float, logits: Tensor, probs: Tensor, key: Tensor) -> Tensor:
    """Keep the fewest tokens, taken in the order of `key`, whose probability reaches `mass`."""
    order = _order(mass, probs, key)
    reached = probs.gather(-1, order).cumsum(-1)
    # Shifted, not `cumsum - values`, which rounds: .5 + .3 + .1 - .1 falls short of .8.
    cut = torch.zeros_like(reached, dtype=torch.bool)
    cut[..., 1:] = reached[..., :-1] >= mass
    kept = torch.zeros_like(logits, dtype=torch.bool).scatter(-1, order, ~cut)
    return logits.masked_fill(~kept, CUT)


def _order(mass: float, probs: Tensor, key: Tensor) -> Tensor:
    """The ids in ascending order of `key`: enough of them to reach `mass`, or all."""
    size = probs.shape[-1]
    # Elsewhere the question whether they are enough costs more than it saves.
    if probs.device.type == "cpu":
        for count in (count for count in _CANDIDATES if 2 * count < size):
            first = key.topk(count, largest=False).indices
            if bool((probs.gather(-1, first).sum(-1) > mass).all()):
                return first
    return torch.sort(key, dim=-1, stable=True).indices
