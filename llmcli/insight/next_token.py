"""The next token: what the model gives each candidate, and what every stage makes of it.

The strategy and its processors are the real ones, watched by generation's own recorder.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from llmcli.errors import UsageError
from llmcli.generation.explain import Recorder, run_chain
from llmcli.generation.params import SamplingParams
from llmcli.generation.processors import Surroundings, make_processors
from llmcli.generation.reads import StrategyName, reads
from llmcli.generation.stepper import Stepper
from llmcli.generation.stop import StopRule
from llmcli.generation.strategies import StrategyOptions, make_strategy
from llmcli.model import Decoder

# What each setting does alone to the model's own distribution.
_ALONE: tuple[tuple[str, SamplingParams], ...] = (
    ("temperature 0.5", SamplingParams(temperature=0.5)),
    ("temperature 1.5", SamplingParams(temperature=1.5)),
    ("top-k 5", SamplingParams(top_k=5)),
    ("top-p 0.9", SamplingParams(top_p=0.9)),
    ("min-p 0.1", SamplingParams(min_p=0.1)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A token with its logit; `probs` go with the stages, and `alone` with single settings."""

    id: int
    token: str
    logit: float
    probs: tuple[float, ...]
    alone: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A distribution: how many tokens are still possible, and its entropy in bits."""

    name: str
    left: int
    entropy_bits: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NextToken:
    """`stages` begin with the model's own distribution; each follows from the one before it.

    `alone` are single settings, each applied to the model's distribution. `draws` are the
    uniform numbers that chose; there are none where the likeliest token was taken.
    """

    strategy: str
    candidates: tuple[Candidate, ...]
    stages: tuple[Stage, ...]
    alone: tuple[Stage, ...]
    chosen: int
    chosen_token: str
    draws: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choosing:
    """How the token is chosen: what the engine's settings came to."""

    strategy: StrategyName
    sampling: bool
    params: SamplingParams
    options: Mapping[str, Any]
    stop_ids: Collection[int] = ()
    line_break_ids: frozenset[int] = frozenset()


def next_token(
    decoder: Decoder,
    ids: Sequence[int],
    choosing: Choosing,
    *,
    count: int,
    name: Callable[[int], str],
) -> NextToken:
    """After `ids`, with the `count` likeliest candidates of the model; `name` gives their text.

    Raises UsageError for a strategy that does not choose one token at a time.
    """
    if "explain" not in reads(choosing.strategy):
        raise UsageError(
            f"strategy {choosing.strategy} chooses whole texts, not one token at a time",
            hint="use another --strategy with this view",
        )
    watch = _Watch(count)
    strategy = make_strategy(
        choosing.strategy,
        choosing.params,
        StrategyOptions(
            explain=watch,
            line_break_ids=choosing.line_break_ids,
            sampling=choosing.sampling,
            **choosing.options,
        ),
    )
    stepper = Stepper(decoder, None)
    next(strategy.run(stepper, ids, StopRule(frozenset(choosing.stop_ids), 1, 1)))
    step = watch.steps[0]
    seen = watch.seen[: len(step.stages)]
    alone = [_alone(label, params, watch.logits, stepper.ids, watch) for label, params in _ALONE]
    return NextToken(
        strategy=choosing.strategy,
        candidates=tuple(
            Candidate(
                id=id_,
                token=name(id_),
                logit=float(watch.logits[0, id_]),
                probs=tuple(probs[at] for _, probs in seen),
                alone=tuple(probs[at] for _, probs in alone),
            )
            for at, id_ in enumerate(watch.ids)
        ),
        stages=tuple(stage for stage, _ in seen),
        alone=tuple(stage for stage, _ in alone),
        chosen=step.chosen,
        chosen_token=name(step.chosen),
        draws=step.draws,
    )


# A stage, and what it gives each of the candidates
_Seen = tuple[Stage, list[float]]


class _Watch(Recorder):
    """Follows the candidates of the first distribution through all stages, cut or not."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.ids: list[int] = []
        self.seen: list[_Seen] = []
        self.logits = torch.empty(0)

    def begin(self, logits: Tensor) -> None:
        if not self.ids:
            self.logits = logits
            best = logits[0].topk(min(self._count, logits.shape[-1]))
            # Of equals the lowest id first, as the choice of the best has it.
            pairs = zip(best.values.tolist(), best.indices.tolist(), strict=True)
            self.ids = [id_ for _, id_ in sorted(pairs, key=lambda one: (-one[0], one[1]))]
        super().begin(logits)

    def stage(self, name: str, logits: Tensor) -> None:
        super().stage(name, logits)
        self.seen.append(self.measure(name, logits))

    def measure(self, name: str, logits: Tensor) -> _Seen:
        row = logits[0].double()
        probs = row.softmax(-1)
        bits = -torch.xlogy(probs, probs).sum().item() / math.log(2)
        stage = Stage(name=name, left=int(row.isfinite().sum()), entropy_bits=max(0.0, bits))
        return stage, probs[self.ids].tolist()


def _alone(label: str, params: SamplingParams, logits: Tensor, ids: Tensor, watch: _Watch) -> _Seen:
    chain = make_processors(params, sampling=True, surroundings=Surroundings())
    return watch.measure(label, run_chain(chain, ids, logits))
