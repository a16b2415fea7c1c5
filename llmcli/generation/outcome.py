"""What a strategy found besides its tokens. Must not import torch."""

from __future__ import annotations

from dataclasses import dataclass, field

from llmcli.generation.token import FinishReason


@dataclass(frozen=True, slots=True)
class Beam:
    """A continuation so far: its ids, the model's logprob of each, and their sum in the search."""

    ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    total: float = 0.0

    def score(self, length_penalty: float, length: int | None = None) -> float:
        """The sum over the length to the power of the penalty; `length` may be a future one."""
        return float(self.total / (len(self.ids) if length is None else length) ** length_penalty)


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A finished continuation with the score that it is ranked by."""

    beam: Beam
    score: float
    finish_reason: FinishReason


@dataclass(slots=True)
class Acceptance:
    """How well guessing went: forwards run, guesses made, and guesses kept."""

    forwards: int = 0
    proposed: int = 0
    accepted: int = 0

    @property
    def rate(self) -> float | None:
        """Guesses kept of those made."""
        return self.accepted / self.proposed if self.proposed else None


@dataclass(slots=True)
class Outcome:
    """Of a beam search the best continuations, best first; of speculative decoding the guesses."""

    hypotheses: list[Hypothesis] = field(default_factory=list)
    acceptance: Acceptance | None = None
