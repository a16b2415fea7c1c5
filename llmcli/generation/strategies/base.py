"""What every strategy is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from llmcli.generation.stepper import Stepper
from llmcli.generation.stop import StopRule
from llmcli.generation.token import Token


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyOptions:
    """What a strategy is told besides the sampling parameters.

    `top_logprobs` candidates are reported with each token. `line_break_ids` are the ids whose
    text breaks a line: no repetition is followed over them, and XTC spares them.
    """

    top_logprobs: int = 0
    line_break_ids: frozenset[int] = frozenset()


class Strategy(Protocol):
    """Owns the loop; works with any cache and without one, and does not know which."""

    def run(self, stepper: Stepper, prompt_ids: Sequence[int], stop: StopRule) -> Iterator[Token]:
        """New tokens as they are chosen; the last one carries the finish reason.

        Raises GenerationError at the first row of logits that is not finite.
        """
        ...
