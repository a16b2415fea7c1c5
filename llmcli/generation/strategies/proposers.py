"""Where speculative decoding's guesses come from: the text itself, or a smaller decoder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from llmcli.generation.sampler import Sampler
from llmcli.generation.stepper import Stepper

# (ids [1,n] so far, a draft's logits [1,V']) -> logits [1,V] as the decoder's own are shaped
Shape = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class Guess:
    """An id and the distribution q [V] that it was drawn from; None where it was certain."""

    id: int
    probs: Tensor | None = None


class Proposer(Protocol):
    """Guesses, any number of them, none included."""

    def propose(
        self, ids: list[int], count: int, shape: Shape, sampler: Sampler | None
    ) -> list[Guess]:
        """Up to `count` guesses for the ids that follow `ids`; without a sampler, the likeliest."""
        ...


class PromptLookup:
    """Guesses that the text repeats itself: what followed the last ids when they were there.

    Runs of `longest` down to `shortest` ids are looked for, and of equals the latest: a text
    repeats its near past more than its far one. An index of all runs grows with the text.
    """

    # What followed a single id is mostly wrong, and a wrong guess costs most of a forward.
    def __init__(self, longest: int = 3, shortest: int = 2) -> None:
        self._longest, self._shortest = longest, shortest
        self._forget()

    def propose(
        self,
        ids: list[int],
        count: int,
        shape: Shape,  # noqa: ARG002
        sampler: Sampler | None,  # noqa: ARG002
    ) -> list[Guess]:
        self._read(ids)
        for size in range(min(self._longest, len(ids) - 1), self._shortest - 1, -1):
            after = self._after.get(tuple(ids[-size:]))
            if after is not None:
                return [Guess(id_) for id_ in ids[after : after + count]]
        return []

    def _read(self, ids: list[int]) -> None:
        """Bring the index up to `ids`, without the run that they end in."""
        # In C this is a few microseconds a thousand ids; a text that was cut back begins anew.
        if ids[: len(self._ids)] != self._ids:
            self._forget()
        for end in range(len(self._ids), len(ids)):
            # What ends before `end` now has a follower.
            for size in range(self._shortest, min(self._longest, end) + 1):
                self._after[tuple(ids[end - size : end])] = end
        self._ids += ids[len(self._ids) :]

    def _forget(self) -> None:
        self._ids: list[int] = []
        # A run of ids, and the place after its latest occurrence that has a follower.
        self._after: dict[tuple[int, ...], int] = {}


class DraftModel:
    """Guesses of a smaller decoder with the same vocabulary, while the text fits its context."""

    def __init__(self, stepper: Stepper) -> None:
        self._stepper = stepper
        # What the stepper holds, on the host; the first `_sure` of it were no guesses.
        self._held: list[int] = []
        self._sure = 0

    def propose(
        self, ids: list[int], count: int, shape: Shape, sampler: Sampler | None
    ) -> list[Guess]:
        stepper = self._stepper
        # The last guess is never fed.
        count = min(count, stepper.decoder.spec.context - len(ids) + 1)
        if count < 1:
            return []
        keep = self._shared(ids)
        if max(ids[keep:]) >= stepper.decoder.spec.vocab_size:
            # The decoder said an id that only its own, larger embedding has.
            return []
        if keep < len(self._held):
            stepper.rewind(len(self._held) - keep)
        guesses: list[Guess] = []
        new = ids[keep:]
        for _ in range(count):
            logits = stepper.feed(torch.tensor([new], device=stepper.decoder.device))
            logits = shape(stepper.ids, logits)
            probs = None if sampler is None else logits[0].softmax(-1)
            id_ = int(logits.argmax() if sampler is None else sampler.draw(logits))
            guesses.append(Guess(id_, probs))
            new = [id_]
        self._held = ids + [one.id for one in guesses[:-1]]
        self._sure = len(ids)
        return guesses

    def _shared(self, ids: list[int]) -> int:
        """How many of `ids` the stepper holds; the last one is always fed anew."""
        most = min(len(self._held), len(ids) - 1)
        start = min(self._sure, most)
        if self._held[:start] != ids[:start]:
            start = 0
        return next((at for at in range(start, most) if self._held[at] != ids[at]), most)
