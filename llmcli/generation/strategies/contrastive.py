"""Contrastive search (arXiv 2202.06417): a likely token whose state is unlike what came before.

Of the `num_candidates` likeliest ids v, the one with the largest

    (1 - alpha) * p(v) - alpha * max_j cos(h_v, h_j)

where h_v is the normed stream before the head that v itself would have, and h_j are those of
all ids before it, the prompt's included. Alpha 0 is greedy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import normalize

from llmcli.generation.explain import run_chain
from llmcli.generation.finite import check_finite
from llmcli.generation.outcome import Outcome
from llmcli.generation.params import SamplingParams
from llmcli.generation.processors import Surroundings, make_processors
from llmcli.generation.stepper import Stepper
from llmcli.generation.stop import StopRule
from llmcli.generation.strategies.base import StrategyOptions
from llmcli.generation.strategies.scored import scored
from llmcli.generation.token import Token


class Contrastive:
    """One row that becomes `num_candidates` rows for one forward a token, and one row again."""

    def __init__(self, params: SamplingParams, options: StrategyOptions) -> None:
        self._params = params
        self._options = options
        self.outcome = Outcome()

    def run(self, stepper: Stepper, prompt_ids: Sequence[int], stop: StopRule) -> Iterator[Token]:
        if stop.budget < 1:
            return
        chain = make_processors(
            self._params,
            sampling=False,
            surroundings=Surroundings(
                len(prompt_ids),
                stop.stop_ids,
                self._options.line_break_ids,
                self._options.constraint,
            ),
        )
        recorder = self._options.explain
        device = stepper.decoder.device
        new = torch.tensor([prompt_ids], dtype=torch.long, device=device)
        states, logits = stepper.feed_with_states(new)
        past = normalize(states[0], dim=-1)  # [n,C]
        for produced in range(1, stop.budget + 1):
            check_finite(logits.sum().item(), stepper, produced)
            own = logits
            if recorder is not None:
                recorder.begin(own)
            shaped = run_chain(chain, stepper.ids, own, recorder)
            ids, probs = self._candidates(shaped)
            stepper.reorder(torch.zeros_like(ids))
            states, logits = stepper.feed_with_states(ids[:, None])
            # A candidate whose state is NaN would win the comparison.
            check_finite(states.sum().item(), stepper, produced)
            states = normalize(states[:, 0], dim=-1)  # [candidates,C]
            scores = self._scores(probs, states, past)
            best = scores.argmax(0, keepdim=True)
            stepper.reorder(best)
            past = torch.cat((past, states[best]))
            logits = logits[best]
            token = scored(own, ids[best], stepper, step=produced, top=self._options.top_logprobs)
            if recorder is not None:
                spread = torch.full_like(own, float("-inf"))
                spread = spread.index_copy(-1, ids, scores[None])
                recorder.stage("contrast", spread, "scores")
                recorder.finish(token.id)
            reason = stop.reason(token.id, produced)
            yield replace(token, finish_reason=reason) if reason else token
            if reason:
                return

    def _candidates(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """The likeliest ids [n] that nothing forbids, and their probabilities."""
        best = logits[0].topk(min(self._options.num_candidates, logits.shape[-1]))
        ids = best.indices[best.values.isfinite()]
        return ids, logits[0].softmax(-1)[ids]

    def _scores(self, probs: Tensor, states: Tensor, past: Tensor) -> Tensor:
        alpha = self._options.penalty_alpha
        alike = (states @ past.T).amax(-1)
        return (1 - alpha) * probs - alpha * alike
