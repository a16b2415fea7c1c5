"""Samplers: one uniform draw turned into an id by inverting the cumulative distribution.

A single number in [0, 1) decides a token, whatever the vocabulary and the device, so a seed
means the same draw everywhere.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from llmcli.generation.explain import Recorder
from llmcli.generation.params import SamplingParams


class Sampler:
    """Draws ids with its own generator; no global seed is touched.

    A recorder is told of every number drawn.
    """

    def __init__(self, seed: int | None, recorder: Recorder | None = None) -> None:
        self._recorder = recorder
        self.generator = torch.Generator()
        if seed is None:
            self.generator.seed()
        else:
            self.generator.manual_seed(seed)

    def draw(self, logits: Tensor) -> Tensor:
        """Ids [B] from logits [B,V]; an id cut to -inf is never drawn."""
        return invert(logits, self.uniform(logits.shape[0]))

    def uniform(self, rows: int = 1) -> Tensor:
        """Numbers [rows,1] in [0, 1), float64 on the CPU."""
        numbers = torch.rand(rows, 1, generator=self.generator, dtype=torch.float64)
        if self._recorder is not None:
            self._recorder.draw(numbers[0].item())
        return numbers


class Mirostat(Sampler):
    """Mirostat 2 (arXiv 2007.14966): cut by surprise, and steer the bar to a mean of `tau` bits.

    One row only: the bar belongs to one text.
    """

    def __init__(
        self, seed: int | None, recorder: Recorder | None = None, *, tau: float, eta: float
    ) -> None:
        super().__init__(seed, recorder)
        self._tau, self._eta = tau, eta
        self.bar = 2 * tau

    def draw(self, logits: Tensor) -> Tensor:
        assert logits.shape[0] == 1
        bits = -logits.log_softmax(-1) / math.log(2)
        hidden = (bits > self.bar) & (bits > bits.amin(-1, keepdim=True))
        kept = logits.masked_fill(hidden, float("-inf"))
        if self._recorder is not None:
            self._recorder.stage("mirostat", kept)
        chosen = super().draw(kept)
        surprise = -kept.log_softmax(-1).gather(-1, chosen[:, None]).item() / math.log(2)
        self.bar -= self._eta * (surprise - self._tau)
        return chosen


def make_sampler(params: SamplingParams, recorder: Recorder | None = None) -> Sampler:
    """The sampler that the parameters ask for, with their seed."""
    if tau := params.mirostat_tau:
        return Mirostat(params.seed, recorder, tau=tau, eta=params.mirostat_eta)
    return Sampler(params.seed, recorder)


def invert(logits: Tensor, uniform: Tensor) -> Tensor:
    """The ids [B] at which the cumulative probability first exceeds uniform [B,1], on the CPU.

    Of a row that is not finite, some id: it is for the caller to refuse such a row.
    """
    wide = torch.float32 if logits.device.type == "mps" else torch.float64
    cumulative = logits.softmax(-1, dtype=wide).cumsum(-1)
    # A lone number goes along with the call: a copy would wait for all that the device has to do.
    drawn = uniform.item() if uniform.numel() == 1 else uniform.to(logits.device, wide)
    # Scaled by the total, so that rounding can leave no gap at the upper end.
    point = cumulative[:, -1:] * drawn
    first = torch.searchsorted(cumulative, point, right=True)
    last = torch.searchsorted(cumulative, cumulative[:, -1:].contiguous(), right=False)
    return torch.minimum(first, last)[:, 0].clamp(max=logits.shape[-1] - 1)
