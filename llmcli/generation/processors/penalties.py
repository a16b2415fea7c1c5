"""Processors that make what was said before less likely."""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor

from llmcli.generation.processors.base import CUT, Processor


def repetition_penalty(penalty: float, last: int = 0) -> Processor:
    """Divide positive and multiply negative logits of every id seen (arXiv 1909.05858).

    `last` > 0 looks at so many latest ids only, the prompt's included.
    """

    def process(ids: Tensor, logits: Tensor) -> Tensor:
        ids = ids[:, -last:]
        seen = logits.gather(-1, ids)
        return logits.scatter(-1, ids, torch.where(seen > 0, seen / penalty, seen * penalty))

    return process


def presence_and_frequency(presence: float, frequency: float, prompt: int) -> Processor:
    """Take `presence`, and `frequency` a count, off ids said after the `prompt` first ids.

    As in OpenAI's interface, the prompt's own ids do not count.
    """

    def process(ids: Tensor, logits: Tensor) -> Tensor:
        said = ids[:, prompt:]
        counts = torch.zeros_like(logits).scatter_add_(-1, said, torch.ones_like(said).to(logits))
        # Only where something was said; an id that was said twice is written twice, alike.
        taken = logits.gather(-1, said) - counts.gather(-1, said) * frequency - presence
        return logits.scatter(-1, said, taken)

    return process


def no_repeat_ngram(size: int) -> Processor:
    """Cut every id that would complete an n-gram already there (arXiv 1705.04304)."""

    def process(ids: Tensor, logits: Tensor) -> Tensor:
        if ids.shape[1] < size:
            return logits
        windows = ids.unfold(1, size, 1)  # [B,n-size+1,size]
        tail = ids[:, ids.shape[1] - size + 1 :]
        again = (windows[..., :-1] == tail[:, None]).all(-1)
        cut = logits.clone()
        for row, repeats in enumerate(again):
            cut[row, windows[row, repeats, -1]] = CUT
        # Where every id is banned the rule cannot be kept.
        possible = cut.amax(-1, keepdim=True) > CUT
        if cut.device.type == "cpu" and bool(possible.all()):
            return cut
        return torch.where(possible, cut, logits)

    return process


def dry(
    multiplier: float,
    *,
    base: float = 1.75,
    allowed: int = 2,
    last: int = 0,
    breakers: Collection[int] = (),
) -> Processor:
    """Penalise ids that would prolong a repetition, more the longer it already is.

    An id that would extend a repeated run of n >= `allowed` ids loses
    `multiplier * base ** (n - allowed)` (text-generation-webui pull request 5677). No run goes
    over an id in `breakers`. `last` > 0 looks at so many latest ids only.
    """
    broken = frozenset(breakers)

    def process(ids: Tensor, logits: Tensor) -> Tensor:
        shaped = logits.clone()
        for row in range(ids.shape[0]):
            for id_, length in repeated_runs(ids[row, -last:].tolist(), broken).items():
                if length >= allowed:
                    shaped[row, id_] -= multiplier * base ** min(length - allowed, 100)
        return shaped

    return process


def repeated_runs(ids: list[int], breakers: frozenset[int] = frozenset()) -> dict[int, int]:
    """For each id that once followed the present ending: the longest run it would prolong.

    The Z-function of the reversed ids gives, in linear time, how far the ending before each
    place agrees with the ending of the whole.
    """
    runs: dict[int, int] = {}
    reverse = ids[::-1]
    limit = next((at for at, id_ in enumerate(reverse) if id_ in breakers), len(reverse))
    agree = [0] * len(reverse)
    left = right = 0
    for at in range(1, len(reverse)):
        length = min(right - at, agree[at - left]) if at < right else 0
        while at + length < len(reverse) and reverse[length] == reverse[at + length]:
            length += 1
        agree[at] = length
        if at + length > right:
            left, right = at, at + length
        # reverse[at - 1] is the id that came after the place that agrees with our ending.
        if (run := min(length, limit)) and (follower := reverse[at - 1]) not in breakers:
            runs[follower] = max(run, runs.get(follower, 0))
    return runs
