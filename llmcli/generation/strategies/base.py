"""What every strategy is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from torch import Tensor

from llmcli.generation.options import StrategyOptions
from llmcli.generation.outcome import Outcome
from llmcli.generation.stepper import Stepper
from llmcli.generation.stop import StopRule
from llmcli.generation.token import Token

__all__ = ["Strategy", "StrategyOptions", "likeliest"]


class Strategy(Protocol):
    """Owns the loop; works with any cache and without one, and does not know which.

    `outcome` fills up during the run.
    """

    outcome: Outcome

    def run(self, stepper: Stepper, prompt_ids: Sequence[int], stop: StopRule) -> Iterator[Token]:
        """New tokens as they are chosen; the last one carries the finish reason.

        Raises GenerationError at the first row of logits that is not finite.
        """
        ...


def likeliest(logprobs: Tensor, count: int) -> tuple[tuple[int, float], ...]:
    """The `count` likeliest (id, logprob) of the first row of logprobs [B,V]."""
    if not count:
        return ()
    best = logprobs[0].topk(min(count, logprobs.shape[-1]))
    return tuple(zip(best.indices.tolist(), best.values.tolist(), strict=True))
