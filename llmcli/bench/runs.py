"""One timed run: a prefill and a fixed number of new tokens, each read off a clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import torch
from torch import Tensor

from llmcli.bench.clock import Clock
from llmcli.generation.stepper import Stepper
from llmcli.generation.stop import StopRule
from llmcli.generation.strategies import Strategy

# ids [B,n] seen so far and logits [B,V] -> ids [B], as a strategy would choose them
Choose = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds to the first token, and for each token after it."""

    first: float
    steps: tuple[float, ...]

    @property
    def total(self) -> float:
        return self.first + sum(self.steps)


class Method(Protocol):
    """A way of choosing ids that can be timed. `stepwise`: one forward a token, in all arms."""

    stepwise: bool

    def ids(self, stepper: Stepper, prompt: Tensor, new: int) -> Tensor:
        """The new ids [B,N] after prompt [B,T], past any end token."""
        ...

    def timed(
        self, stepper: Stepper, prompt: Tensor, forced: Tensor, clock: Clock
    ) -> tuple[Timing, bool]:
        """One run of as many tokens as `forced` [B,N], and whether its ids were those."""
        ...


class Forced:
    """Every token is chosen, so that choosing costs what it costs, but a forced one is fed.

    All arms then do the same work, whatever rounding does to a choice. `make_choose` gives a
    fresh chooser for each run, which draws the same numbers.
    """

    stepwise = True

    def __init__(self, make_choose: Callable[[int], Choose]) -> None:
        self._make_choose = make_choose

    def ids(self, stepper: Stepper, prompt: Tensor, new: int) -> Tensor:
        choose, fed, found = self._make_choose(prompt.shape[1]), prompt, []
        for _ in range(new):
            logits = stepper.feed(fed)
            fed = choose(stepper.ids, logits)[:, None]
            found.append(fed)
        return torch.cat(found, 1)

    def timed(
        self, stepper: Stepper, prompt: Tensor, forced: Tensor, clock: Clock
    ) -> tuple[Timing, bool]:
        choose = self._make_choose(prompt.shape[1])
        start = clock.read()
        logits = stepper.feed(prompt)
        choose(stepper.ids, logits)
        then = clock.read()
        first, steps = then - start, []
        for at in range(forced.shape[1] - 1):
            logits = stepper.feed(forced[:, at : at + 1])
            choose(stepper.ids, logits)
            now = clock.read()
            steps.append(now - then)
            then = now
        return Timing(first, tuple(steps)), True


class Free:
    """A strategy that owns its loop (beam, prompt lookup, ...) runs as it is; its ids are compared.

    Several tokens may come of one forward, or all of them at the end.
    """

    stepwise = False

    def __init__(self, make: Callable[[], Strategy]) -> None:
        self._make = make

    def ids(self, stepper: Stepper, prompt: Tensor, new: int) -> Tensor:
        tokens = self._make().run(stepper, prompt[0].tolist(), _rule(new))
        return torch.tensor([[token.id for token in tokens]], device=prompt.device)

    def timed(
        self, stepper: Stepper, prompt: Tensor, forced: Tensor, clock: Clock
    ) -> tuple[Timing, bool]:
        tokens = self._make().run(stepper, prompt[0].tolist(), _rule(forced.shape[1]))
        ids, readings = [], [clock.read()]
        for token in tokens:
            ids.append(token.id)
            readings.append(clock.read())
        steps = [now - then for then, now in pairwise(readings)]
        return Timing(steps[0], tuple(steps[1:])), ids == forced[0].tolist()


def _rule(new: int) -> StopRule:
    return StopRule(frozenset(), max_new_tokens=new, room=new)
