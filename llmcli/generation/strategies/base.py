"""What every strategy is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from torch import Tensor

from llmcli.generation.stepper import Stepper
from llmcli.generation.stop import StopRule
from llmcli.generation.token import Token

EarlyStopping = Literal["on", "off", "never"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyOptions:
    """What a strategy is told besides the sampling parameters.

    `top_logprobs` candidates are reported with each token. `line_break_ids` are the ids whose
    text breaks a line: no repetition is followed over them, and XTC spares them. `sampling` is
    for strategies that can draw or choose the likeliest. The rest is read by the strategies
    that its names speak of.
    """

    top_logprobs: int = 0
    line_break_ids: frozenset[int] = frozenset()
    sampling: bool = False
    num_beams: int = 4
    num_beam_groups: int = 1
    diversity_penalty: float = 0.0
    length_penalty: float = 1.0
    early_stopping: EarlyStopping = "off"
    num_draft_tokens: int = 5


class Strategy(Protocol):
    """Owns the loop; works with any cache and without one, and does not know which."""

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
