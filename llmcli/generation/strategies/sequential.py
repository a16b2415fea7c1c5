"""Greedy and sample: the one short loop that chooses a token, yields it and feeds it back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from llmcli.generation.explain import run_chain
from llmcli.generation.outcome import Outcome
from llmcli.generation.params import SamplingParams
from llmcli.generation.processors import Surroundings, make_processors
from llmcli.generation.sampler import make_sampler
from llmcli.generation.stepper import Stepper
from llmcli.generation.stop import StopRule
from llmcli.generation.strategies.base import StrategyOptions
from llmcli.generation.strategies.guided import guided
from llmcli.generation.strategies.scored import scored
from llmcli.generation.token import Token

# (processed logits [1,V]) -> chosen ids [1]
Pick = Callable[[Tensor], Tensor]
# new ids [1,T] -> the decoder's own logits [1,V], and those that the chain begins with
Source = Callable[[Tensor], tuple[Tensor, Tensor]]


class Sequential:
    """One row, one token a step. A subclass says where logits come from and how a token is picked.

    `sampling` is whether tokens are drawn; at temperature 0 none is.
    """

    # What the logits that the chain begins with are called, where they are not the decoder's.
    source_name = "guidance"
    # Whether every id keeps a finite logit, so that a constraint always leaves one.
    constrainable = True

    def __init__(self, params: SamplingParams, options: StrategyOptions, *, sampling: bool) -> None:
        self._params = params
        self._options = options
        self._sampling = sampling and params.temperature > 0
        self.outcome = Outcome()

    def make_source(self, stepper: Stepper) -> Source:
        """How new ids are fed, and what comes of it."""

        def feed(new: Tensor) -> tuple[Tensor, Tensor]:
            logits = stepper.feed(new)
            return logits, logits

        options = self._options
        if options.guidance_scale == 1:
            return feed
        return partial(
            guided,
            stepper,
            other=stepper.sibling(),
            negative_ids=options.negative_ids,
            scale=options.guidance_scale,
        )

    def run(self, stepper: Stepper, prompt_ids: Sequence[int], stop: StopRule) -> Iterator[Token]:
        if stop.budget < 1:
            return
        recorder = self._options.explain
        feed = self.make_source(stepper)
        pick, generator = self._make_pick()
        chain = make_processors(
            self._params,
            sampling=self._sampling,
            surroundings=Surroundings(
                len(prompt_ids),
                stop.stop_ids,
                self._options.line_break_ids,
                self._options.constraint if self.constrainable else None,
            ),
            generator=generator,
        )
        new = torch.tensor([prompt_ids], dtype=torch.long, device=stepper.decoder.device)
        for produced in range(1, stop.budget + 1):
            logits, start = feed(new)
            if recorder is not None:
                recorder.begin(logits)
                if start is not logits:
                    recorder.stage(self.source_name, start)
            chosen = pick(run_chain(chain, stepper.ids, start, recorder))
            token = scored(
                logits,
                chosen,
                stepper,
                start=start,
                step=produced,
                top=self._options.top_logprobs,
            )
            if recorder is not None:
                recorder.finish(token.id)
            new = chosen[:, None]
            reason = stop.reason(token.id, produced)
            yield replace(token, finish_reason=reason) if reason else token
            if reason:
                return

    def _make_pick(self) -> tuple[Pick, torch.Generator | None]:
        """How ids are picked, and the generator that the chain may draw from."""
        if not self._sampling:
            return _best, None
        sampler = make_sampler(self._params, self._options.explain)
        return sampler.draw, sampler.generator


class Greedy(Sequential):
    """The likeliest token, always."""

    def __init__(self, params: SamplingParams, options: StrategyOptions) -> None:
        super().__init__(params, options, sampling=False)


class Sample(Sequential):
    """A token drawn from the distribution that the processors leave; at temperature 0, greedy."""

    def __init__(self, params: SamplingParams, options: StrategyOptions) -> None:
        super().__init__(params, options, sampling=True)


def _best(logits: Tensor) -> Tensor:
    return logits.argmax(-1)
