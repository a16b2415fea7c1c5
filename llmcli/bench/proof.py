"""Whether the arms computed the same: their logits side by side, fed the same ids.

The steppers go in step, so that only one row of logits an arm is held at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from llmcli.generation.stepper import Stepper

# A gap between the best two logits below this share of their standard deviation is a near tie:
# what on and off round apart in this dtype, with a margin (tests/cache shows the distances).
NEAR_TIE = {torch.float64: 1e-8, torch.float32: 1e-3, torch.bfloat16: 0.25, torch.float16: 0.05}


@dataclass(frozen=True, slots=True)
class Difference:
    """The first step at which an arm's best token is another; step 0 follows the prompt.

    `gap` is that of the reference's best two logits, `near_tie` whether it lies within what
    rounding explains.
    """

    step: int
    expected: int
    got: int
    gap: float
    near_tie: bool


@dataclass(frozen=True, slots=True)
class Proof:
    """An arm against the reference, over all steps and rows.

    `max_logit` is the largest difference of a logit, `max_kl` the largest divergence of the
    distributions in nats (reference to arm), each with all steps' values.
    """

    steps: int
    same_ids: bool
    max_logit: float
    max_kl: float
    logit_by_step: tuple[float, ...]
    kl_by_step: tuple[float, ...]
    first_difference: Difference | None
    worst: Difference | None

    @property
    def holds(self) -> bool:
        """Whether every difference of a choice is a near tie."""
        return self.worst is None or self.worst.near_tie


def prove(
    reference: Stepper, others: Mapping[str, Stepper], prompt: Tensor, forced: Tensor
) -> dict[str, Proof]:
    """Feed prompt [B,T] and forced [B,N] to all; one Proof for each of `others`."""
    found: dict[str, list[_Step]] = {name: [] for name in others}
    near = NEAR_TIE[reference.decoder.dtype]
    for step in range(forced.shape[1]):
        new = prompt if step == 0 else forced[:, step - 1 : step]
        expected = reference.feed(new).double()
        for name, other in others.items():
            found[name].append(_compared(step, expected, other.feed(new).double(), near))
    return {name: _proof(steps) for name, steps in found.items()}


@dataclass(frozen=True, slots=True)
class _Step:
    max_logit: float
    kl: float
    difference: Difference | None


def _compared(step: int, expected: Tensor, got: Tensor, near: float) -> _Step:
    logprobs, other = expected.log_softmax(-1), got.log_softmax(-1)
    divergence = (logprobs.exp() * (logprobs - other)).sum(-1).clamp(min=0).max().item()
    largest = (expected - got).abs().max().item()
    best, chosen = expected.argmax(-1), got.argmax(-1)
    rows = (best != chosen).nonzero()[:, 0].tolist()
    differences = [
        _difference(step, expected[row], int(best[row]), int(chosen[row]), near) for row in rows
    ]
    return _Step(largest, divergence, max(differences, key=lambda one: one.gap, default=None))


def _difference(step: int, logits: Tensor, best: int, chosen: int, near: float) -> Difference:
    gap = (logits[best] - logits[chosen]).item()
    return Difference(step, best, chosen, gap, gap <= near * logits.std().item())


def _proof(steps: list[_Step]) -> Proof:
    differences = [one.difference for one in steps if one.difference is not None]
    return Proof(
        steps=len(steps),
        same_ids=not differences,
        max_logit=max(one.max_logit for one in steps),
        max_kl=max(one.kl for one in steps),
        logit_by_step=tuple(one.max_logit for one in steps),
        kl_by_step=tuple(one.kl for one in steps),
        first_difference=differences[0] if differences else None,
        worst=max(differences, key=lambda one: one.gap, default=None),
    )
