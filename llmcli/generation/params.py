"""SamplingParams: every number that shapes the choice of a token, checked once."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from llmcli.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """Neutral by default: temperature 1 and every filter off.

    `temperature` 0 is greedy whatever else is set. `top_k` 0 is off, and so is any value from
    the vocabulary's size up. `top_p` 1 and `min_p` 0 are off; `top_p` 0 keeps the best token.
    `repetition_penalty` 1 is off. `seed` None draws a fresh one.

    Raises UsageError naming the value and its range.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None

    def __post_init__(self) -> None:
        _within("temperature", self.temperature, 0, math.inf)
        _within("top-k", self.top_k, 0, math.inf)
        _within("top-p", self.top_p, 0, 1)
        _within("min-p", self.min_p, 0, 1)
        _within("repetition-penalty", self.repetition_penalty, 0, math.inf)
        if self.repetition_penalty == 0:
            raise UsageError("repetition-penalty is 0; it must be above 0", hint="1 is off")
        if self.seed is not None:
            _within("seed", self.seed, 0, 2**63 - 1)


SAMPLING_KEYS = tuple(field.name for field in fields(SamplingParams))


def _within(name: str, value: float, low: float, high: float) -> None:
    # NaN fails both comparisons, so it is refused as well; infinity is never a setting.
    if not (low <= value <= high) or math.isinf(value):
        top = "any finite number" if math.isinf(high) else f"{high:g}"
        raise UsageError(
            f"{name} is {value:g}; it must lie between {low:g} and {top}",
            hint=f"see --{name} in `llmcli generate --help`",
        )
