"""StrategyOptions: what strategies are told besides sampling parameters. Must not import torch."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from llmcli.errors import UsageError
from llmcli.generation.ranges import check_ranges, ranged

if TYPE_CHECKING:
    from llmcli.generation.constraint import Constraint
    from llmcli.generation.explain import Recorder
    from llmcli.generation.stepper import Stepper

EarlyStopping = Literal["on", "off", "never"]
DolaLayers = Literal["low", "high"] | tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyOptions:
    """What a strategy is told besides the sampling parameters.

    `top_logprobs` candidates are reported with each token; `explain` takes down how each was
    chosen. `line_break_ids` are the ids whose text breaks a line: no repetition is followed over
    them, and XTC spares them. `sampling` is for strategies that can draw or choose the
    likeliest. `constraint` forbids what would break a grammar. Guidance, beam search,
    speculative decoding, contrastive search and DoLa read the rest, in this order; the table in
    reads.py says who reads what. With guidance, the negative prompt too must leave room for the
    new tokens. Of a beam search the `num_return` best are kept, and `on_step(done, budget)` is
    called after each step. `draft` steps a model with the same vocabulary.

    Raises UsageError naming the value and its range.
    """

    top_logprobs: int = ranged(0)
    explain: Recorder | None = None
    line_break_ids: frozenset[int] = frozenset()
    sampling: bool = False
    constraint: Constraint | None = None
    guidance_scale: float = ranged(1.0)
    negative_ids: tuple[int, ...] = ()
    num_beams: int = ranged(4, 1)
    num_beam_groups: int = ranged(1, 1)
    diversity_penalty: float = ranged(0.0)
    length_penalty: float = ranged(1.0, -math.inf)
    early_stopping: EarlyStopping = "off"
    num_return: int = ranged(1, 1)
    on_step: Callable[[int, int], None] | None = None
    num_draft_tokens: int = ranged(5, 1)
    draft: Stepper | None = None
    penalty_alpha: float = ranged(0.6, 0, 1)
    num_candidates: int = ranged(4, 1)
    dola_layers: DolaLayers = "low"

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.negative_ids and self.guidance_scale == 1:
            raise UsageError(
                "a negative prompt has no effect at guidance-scale 1",
                hint="--guidance-scale 1.5 is a usual value",
            )
        if self.num_beams % self.num_beam_groups:
            raise UsageError(
                f"{self.num_beams} beams cannot be split into {self.num_beam_groups} groups",
                hint="--num-beams must be a multiple of --num-beam-groups",
            )
        if self.num_return > self.num_beams:
            raise UsageError(
                f"num-return is {self.num_return}, but there are only {self.num_beams} beams",
                hint="--num-beams must be at least --num-return",
            )
        if self.diversity_penalty and self.num_beam_groups == 1:
            raise UsageError(
                f"diversity-penalty is {self.diversity_penalty:g}, but there is one group of beams",
                hint="--num-beam-groups 2 or more makes groups that can differ",
            )
