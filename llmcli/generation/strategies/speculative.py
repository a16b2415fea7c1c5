"""Speculative decoding (arXiv 2211.17192): cheap guesses, checked many at a time, exactly.

A proposer guesses ids; the decoder scores all of them in one forward. A guess x is kept with
probability min(1, p(x)/q(x)), and the first that fails is replaced by a draw from what p has
over q. The output follows the decoder's own distribution, whatever the guesses are; greedy
keeps a guess exactly where it is the likeliest id.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from llmcli.generation.explain import run_chain
from llmcli.generation.finite import check_finite
from llmcli.generation.outcome import Acceptance, Outcome
from llmcli.generation.params import SamplingParams
from llmcli.generation.processors import Processor, Surroundings, make_processors
from llmcli.generation.processors.base import CUT
from llmcli.generation.sampler import Sampler, invert
from llmcli.generation.stepper import Stepper
from llmcli.generation.stop import StopRule
from llmcli.generation.strategies.base import StrategyOptions, likeliest
from llmcli.generation.strategies.proposers import Guess, Proposer
from llmcli.generation.token import FinishReason, Token

Chain = list[tuple[str, Processor]]


class _Fact(NamedTuple):
    """What the host must know of one place: the id there, its logprob, the sum of the logits."""

    id: int
    logprob: float
    total: float


class Speculative:
    """One row; several tokens may come of one forward."""

    def __init__(
        self, params: SamplingParams, options: StrategyOptions, proposer: Proposer
    ) -> None:
        self._params, self._options, self._proposer = params, options, proposer
        self.acceptance = Acceptance()
        self.outcome = Outcome(acceptance=self.acceptance)

    def run(self, stepper: Stepper, prompt_ids: Sequence[int], stop: StopRule) -> Iterator[Token]:
        if stop.budget < 1:
            return
        recorder = self._options.explain
        drawing = self._options.sampling and self._params.temperature > 0
        sampler = Sampler(self._params.seed, recorder) if drawing else None
        chain = make_processors(
            self._params,
            sampling=drawing,
            surroundings=Surroundings(
                len(prompt_ids),
                stop.stop_ids,
                self._options.line_break_ids,
                self._options.constraint,
            ),
            generator=sampler.generator if sampler else None,
        )
        plain = not (chain or drawing or recorder)

        def shape(ids: Tensor, logits: Tensor) -> Tensor:
            return run_chain(chain, ids, _of_size(logits, stepper.decoder.spec.vocab_size))

        device = stepper.decoder.device
        ids = list(prompt_ids)
        guesses: list[Guess] = []
        new = torch.tensor([prompt_ids], dtype=torch.long, device=device)
        produced = 0
        while True:
            # [guesses+1,V]; a prompt's own places need no logits
            logits = stepper.feed_each(new)[0] if guesses else stepper.feed(new)
            self.acceptance.forwards += 1
            if plain:
                facts = _likeliest_while_right(logits, guesses)
            else:
                check_finite(logits.sum().item(), stepper, produced + 1)
                facts = _facts(logits, self._check(logits, ids, guesses, chain, sampler))
            right = len(facts) - 1
            self.acceptance.accepted += right
            stepper.rewind(len(guesses) - right)
            for fact, row in zip(facts, logits, strict=False):
                produced += 1
                check_finite(fact.total, stepper, produced)
                ids.append(fact.id)
                reason = stop.reason(fact.id, produced)
                yield self._token(fact, row, reason)
                if reason:
                    if recorder is not None:
                        del recorder.steps[produced:]
                    return
            # At least one token comes of the next forward beside the guesses.
            count = min(self._options.num_draft_tokens, stop.budget - produced - 1)
            guesses = self._proposer.propose(ids, count, shape, sampler) if count > 0 else []
            self.acceptance.proposed += len(guesses)
            new = torch.tensor([[ids[-1], *(one.id for one in guesses)]], device=device)

    def _check(
        self,
        logits: Tensor,
        ids: list[int],
        guesses: list[Guess],
        chain: Chain,
        sampler: Sampler | None,
    ) -> Tensor:
        """The guesses that hold, and after them one id of the decoder's own: [kept]."""
        recorder = self._options.explain
        kept: list[int] = []
        for place, row in enumerate(logits):
            seen = torch.tensor([ids + kept], device=logits.device)
            if recorder is not None:
                recorder.begin(row[None])
            shaped = run_chain(chain, seen, row[None], recorder)
            guess = guesses[place] if place < len(guesses) else None
            id_, held = _decide(shaped, guess, sampler)
            if recorder is not None:
                recorder.finish(id_, guess.id if guess else None)
            kept.append(id_)
            if not held:
                break
        return torch.tensor(kept, device=logits.device)

    def _token(self, fact: _Fact, logits: Tensor, reason: FinishReason | None) -> Token:
        count = self._options.top_logprobs
        top = likeliest(logits[None].log_softmax(-1), count) if count else ()
        return Token(fact.id, fact.logprob, top, reason)


def _likeliest_while_right(logits: Tensor, guesses: list[Guess]) -> list[_Fact]:
    """The likeliest ids, up to the first that is not what was guessed; one copy to the host."""
    facts = _facts(logits, logits.argmax(-1))
    pairs = zip(facts, guesses, strict=False)
    right = next((at for at, (fact, guess) in enumerate(pairs) if fact.id != guess.id), None)
    return facts if right is None else facts[: right + 1]


def _facts(logits: Tensor, chosen: Tensor) -> list[_Fact]:
    """Of the ids chosen [n] at the first n places of logits [N,V]."""
    logits = logits[: chosen.shape[0]]
    logprobs = logits.log_softmax(-1).gather(-1, chosen[:, None])[:, 0]
    rows = torch.stack((chosen.double(), logprobs.double(), logits.sum(-1).double()), -1)
    return [_Fact(int(id_), logprob, total) for id_, logprob, total in rows.tolist()]


def _of_size(logits: Tensor, size: int) -> Tensor:
    """A draft's logits [1,V'] cut or filled up to [1,size]: embeddings are padded differently."""
    missing = size - logits.shape[-1]
    return pad(logits, (0, missing), value=CUT) if missing > 0 else logits[:, :size]


def _decide(logits: Tensor, guess: Guess | None, sampler: Sampler | None) -> tuple[int, bool]:
    """The id at this place, and whether the guess was kept (so that the next may be looked at)."""
    if sampler is None:
        best = int(logits.argmax())
        return best, guess is not None and best == guess.id
    if guess is None:
        return int(sampler.draw(logits)), False
    p = logits[0].double().softmax(-1)
    q = torch.zeros_like(p)
    if guess.probs is None:
        q[guess.id] = 1.0
    else:
        q += guess.probs.double()
    if sampler.uniform().item() * q[guess.id].item() < p[guess.id].item():
        return guess.id, True
    rest = (p - q).clamp(min=0)
    return int(invert(rest.log()[None], sampler.uniform())), False
