"""Token: one new id with what is known about its choice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

FinishReason = Literal["stop", "length", "context"]


@dataclass(frozen=True, slots=True)
class Token:
    """`logprob` is the model's own, natural log, before any processor touched the logits.

    `top` holds the likeliest (id, logprob) pairs where they were asked for.
    `finish_reason` is set on the last token.
    """

    id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()
    finish_reason: FinishReason | None = None
