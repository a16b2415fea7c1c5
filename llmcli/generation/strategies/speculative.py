"""Speculative decoding (arXiv 2211.17192): cheap guesses, checked many at a time, exactly.

A proposer guesses ids; the decoder scores all of them in one forward. A guess x is kept with
probability min(1, p(x)/q(x)), and the first that fails is replaced by a draw from what p has
over q. The output follows the decoder's own distribution, whatever the guesses are; greedy
keeps a guess exactly where it is the likeliest id.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from llmcli.generation.explain import run_chain
from llmcli.generation.finite import check_finite
from llmcli.generation.params import SamplingParams
from llmcli.generation.processors import Processor, Surroundings, make_processors
from llmcli.generation.sampler import Sampler, invert
from llmcli.generation.stepper import Stepper
from llmcli.generation.stop import StopRule
from llmcli.generation.strategies.base import StrategyOptions, likeliest
from llmcli.generation.token import Token

Chain = list[tuple[str, Processor]]


@dataclass(frozen=True, slots=True)
class Guess:
    """An id and the distribution q [V] that it was drawn from; None where it was certain."""

    id: int
    probs: Tensor | None = None


class Proposer(Protocol):
    """Where guesses come from."""

    def propose(
        self, ids: list[int], count: int, chain: Chain, sampler: Sampler | None
    ) -> list[Guess]:
        """Up to `count` guesses for the ids that follow `ids`; without a sampler, the likeliest."""
        ...


@dataclass(slots=True)
class Acceptance:
    """How well the guessing went."""

    forwards: int = 0
    proposed: int = 0
    accepted: int = 0

    @property
    def rate(self) -> float | None:
        """Guesses kept of those made."""
        return self.accepted / self.proposed if self.proposed else None


class PromptLookup:
    """Guesses that the text repeats itself: what followed the last ids when they were there."""

    def __init__(self, longest: int = 3) -> None:
        self._longest = longest

    def propose(
        self,
        ids: list[int],
        count: int,
        chain: Chain,  # noqa: ARG002
        sampler: Sampler | None,  # noqa: ARG002
    ) -> list[Guess]:
        for size in range(min(self._longest, len(ids) - 1), 0, -1):
            tail = ids[-size:]
            # The latest earlier place: a text repeats its near past more than its far one.
            for start in range(len(ids) - size - 1, -1, -1):
                if ids[start : start + size] == tail:
                    return [Guess(id_) for id_ in ids[start + size : start + size + count]]
        return []


class DraftModel:
    """Guesses of a smaller decoder with the same tokenizer."""

    def __init__(self, stepper: Stepper) -> None:
        self._stepper = stepper

    def propose(
        self, ids: list[int], count: int, chain: Chain, sampler: Sampler | None
    ) -> list[Guess]:
        stepper = self._stepper
        held = stepper.ids[0].tolist()
        most = min(len(held), len(ids) - 1)
        keep = next((at for at in range(most) if held[at] != ids[at]), most)
        if keep < len(held):
            stepper.rewind(len(held) - keep)
        guesses: list[Guess] = []
        new = ids[keep:]
        for _ in range(count):
            logits = stepper.feed(torch.tensor([new], device=stepper.decoder.device))
            logits = run_chain(chain, stepper.ids, logits)
            probs = logits[0].softmax(-1)
            id_ = int(logits.argmax() if sampler is None else sampler.draw(logits))
            guesses.append(Guess(id_, None if sampler is None else probs))
            new = [id_]
        return guesses


class Speculative:
    """One row; several tokens may come of one forward."""

    def __init__(
        self, params: SamplingParams, options: StrategyOptions, proposer: Proposer
    ) -> None:
        self._params, self._options, self._proposer = params, options, proposer
        self.acceptance = Acceptance()

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
        device = stepper.decoder.device
        ids = list(prompt_ids)
        guesses: list[Guess] = []
        new = torch.tensor([prompt_ids], dtype=torch.long, device=device)
        produced = 0
        while True:
            # [guesses+1,V]; a prompt's own places need no logits
            logits = stepper.feed_each(new)[0] if guesses else stepper.feed(new)
            self.acceptance.forwards += 1
            check_finite(logits.sum().item(), stepper, produced + 1)
            kept = self._check(logits, ids, guesses, chain, sampler)
            wrong = len(guesses) - (len(kept) - 1)
            stepper.rewind(wrong)
            for id_, row in zip(kept, logits, strict=False):
                produced += 1
                ids.append(id_)
                reason = stop.reason(id_, produced)
                token = self._token(id_, row)
                yield replace(token, finish_reason=reason) if reason else token
                if reason:
                    if recorder is not None:
                        del recorder.steps[produced:]
                    return
            # At least one token comes of the next forward beside the guesses.
            count = min(self._options.num_draft_tokens, stop.budget - produced - 1)
            guesses = self._proposer.propose(ids, count, chain, sampler) if count > 0 else []
            self.acceptance.proposed += len(guesses)
            new = torch.tensor([[ids[-1], *(one.id for one in guesses)]], device=device)

    def _check(
        self,
        logits: Tensor,
        ids: list[int],
        guesses: list[Guess],
        chain: Chain,
        sampler: Sampler | None,
    ) -> list[int]:
        """The guesses that hold, and after them one id of the decoder's own."""
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
            self.acceptance.accepted += 1
        return kept

    def _token(self, id_: int, logits: Tensor) -> Token:
        logprobs = logits.log_softmax(-1)
        return Token(
            id_, logprobs[id_].item(), likeliest(logprobs[None], self._options.top_logprobs)
        )


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
    return int(invert(rest.log()[None], sampler.uniform().to(rest.device))), False
