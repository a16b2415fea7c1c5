"""The stop rule: which id, count or place ends a generation."""

from __future__ import annotations

from dataclasses import dataclass

from llmcli.generation.token import FinishReason


@dataclass(frozen=True, slots=True)
class StopRule:
    """`room` is how many new tokens the context still holds after the prompt."""

    stop_ids: frozenset[int]
    max_new_tokens: int
    room: int

    @property
    def budget(self) -> int:
        """New tokens at most."""
        return min(self.max_new_tokens, self.room)

    def reason(self, last_id: int, produced: int) -> FinishReason | None:
        """Why the generation ends after `produced` new tokens, or None to go on."""
        if last_id in self.stop_ids:
            return "stop"
        return self.exhausted(produced)

    def exhausted(self, produced: int) -> FinishReason | None:
        """`length` or `context` where the budget is used up; `length` where both bind."""
        if produced >= self.max_new_tokens:
            return "length"
        return "context" if produced >= self.room else None
