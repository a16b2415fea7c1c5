"""Greedy and sample: the one short loop that chooses a token, yields it and feeds it back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from llmcli.generation.finite import check_finite
from llmcli.generation.params import SamplingParams
from llmcli.generation.processors import Processor, make_processors
from llmcli.generation.sampler import Sampler
from llmcli.generation.stepper import Stepper
from llmcli.generation.stop import StopRule
from llmcli.generation.token import Token

# (processed logits [1,V]) -> chosen ids [1]
Pick = Callable[[Tensor], Tensor]


class _Sequential:
    """One row, one token a step."""

    def __init__(self, processors: list[Processor], pick: Pick, top_logprobs: int) -> None:
        self._processors = processors
        self._pick = pick
        self._top = top_logprobs

    def run(self, stepper: Stepper, prompt_ids: Sequence[int], stop: StopRule) -> Iterator[Token]:
        if stop.budget < 1:
            return
        new = torch.tensor([prompt_ids], dtype=torch.long, device=stepper.decoder.device)
        for produced in range(1, stop.budget + 1):
            logits = stepper.feed(new)
            token, new = self._choose(logits, stepper, produced)
            reason = stop.reason(token.id, produced)
            yield Token(token.id, token.logprob, token.top, reason)
            if reason:
                return

    def _choose(self, logits: Tensor, stepper: Stepper, step: int) -> tuple[Token, Tensor]:
        shaped = logits
        for process in self._processors:
            shaped = process(stepper.ids, shaped)
        chosen = self._pick(shaped)
        total = logits.logsumexp(-1)
        logprob = logits.gather(-1, chosen[:, None])[:, 0] - total
        # One copy to the host a step: the id, its logprob and the sum that shows any NaN or inf.
        facts = torch.stack((chosen.double(), logprob.double(), logits.sum(-1).double()))
        id_, logprob_, sum_ = facts[:, 0].tolist()
        check_finite(sum_, stepper, step)
        top = _likeliest(logits - total[:, None], self._top)
        return Token(int(id_), logprob_, top), chosen[:, None]


class Greedy(_Sequential):
    """The likeliest token, always."""

    def __init__(self, params: SamplingParams, top_logprobs: int = 0) -> None:
        chain = make_processors(params, sampling=False)
        super().__init__(chain, _best, top_logprobs)


class Sample(_Sequential):
    """A token drawn from the distribution that the processors leave; at temperature 0, greedy."""

    def __init__(self, params: SamplingParams, top_logprobs: int = 0) -> None:
        drawing = params.temperature > 0
        pick = Sampler(params.seed).draw if drawing else _best
        super().__init__(make_processors(params, sampling=drawing), pick, top_logprobs)


def _best(logits: Tensor) -> Tensor:
    return logits.argmax(-1)


def _likeliest(logprobs: Tensor, count: int) -> tuple[tuple[int, float], ...]:
    if not count:
        return ()
    best = logprobs[0].topk(min(count, logprobs.shape[-1]))
    return tuple(zip(best.indices.tolist(), best.values.tolist(), strict=True))
