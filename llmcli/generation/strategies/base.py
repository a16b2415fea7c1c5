"""What every strategy is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from llmcli.generation.stepper import Stepper
from llmcli.generation.stop import StopRule
from llmcli.generation.token import Token


class Strategy(Protocol):
    """Owns the loop; works with any cache and without one, and does not know which."""

    def run(self, stepper: Stepper, prompt_ids: Sequence[int], stop: StopRule) -> Iterator[Token]:
        """New tokens as they are chosen; the last one carries the finish reason.

        Raises GenerationError at the first row of logits that is not finite.
        """
        ...
