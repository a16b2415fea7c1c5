"""One timed run: a prefill and a forced number of steps, each read off a clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from llmcli.bench.clock import Clock
from llmcli.generation.stepper import Stepper

# logits [B,V] and the step's number -> ids [B], as a strategy would choose them
Choose = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds to the first token, and for each token after it."""

    first: float
    steps: tuple[float, ...]

    @property
    def total(self) -> float:
        return self.first + sum(self.steps)


def timed_run(
    stepper: Stepper, prompt: Tensor, forced: Tensor, choose: Choose, clock: Clock
) -> Timing:
    """Feed prompt [B,T], then forced ids [B,N] one by one but for the last.

    Every token is chosen too, so that the cost of choosing counts, but the forced one is fed: all
    arms then do the same work whatever rounding does to a choice.
    """
    start = clock.read()
    choose(stepper.ids, stepper.feed(prompt))
    then = clock.read()
    first, steps = then - start, []
    for at in range(forced.shape[1] - 1):
        choose(stepper.ids, stepper.feed(forced[:, at : at + 1]))
        now = clock.read()
        steps.append(now - then)
        then = now
    return Timing(first, tuple(steps))
