"""The next token: what the model gives each candidate, and what every stage makes of it.

The choice is one that a strategy really made, as generation's own recorder took it down.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from llmcli.generation.explain import Stage, Step, run_chain
from llmcli.generation.params import SamplingParams
from llmcli.generation.processors import make_processors
from llmcli.generation.stepper import Stepper
from llmcli.model import Decoder

# Candidates followed through the stages, of which the likeliest are shown.
TAKEN_DOWN = 200
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
    """A token with its logit; `values` go with the stages, and `alone` with single settings.

    A value is a probability, 0 of a token that was cut, or the stage's own score. None stands for
    what is smaller than all that was taken down.
    """

    id: int
    token: str
    logit: float
    values: tuple[float | None, ...]
    alone: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shaped:
    """A distribution: how many tokens are still possible, and its entropy in bits.

    The entropy is None where the stage has scores in place of probabilities.
    """

    name: str
    left: int
    entropy_bits: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NextToken:
    """`stages` begin with the model's own distribution; each follows from the one before it.

    `alone` are single settings, each applied to the model's distribution. `draws` are the
    uniform numbers that chose; there are none where the likeliest token was taken.
    """

    strategy: str
    candidates: tuple[Candidate, ...]
    stages: tuple[Shaped, ...]
    alone: tuple[Shaped, ...]
    chosen: int
    chosen_token: str
    draws: tuple[float, ...]


def next_token(
    decoder: Decoder,
    ids: Sequence[int],
    step: Step,
    *,
    strategy: str,
    count: int,
    name: Callable[[int], str],
) -> NextToken:
    """After `ids`, with the `count` likeliest candidates of the model; `name` gives their text.

    `step` is how a strategy chose the token, taken down with TAKEN_DOWN candidates or more.
    """
    best = step.stages[0].top[:count]
    alone = _alone(decoder, ids, [one.id for one in best])
    return NextToken(
        strategy=strategy,
        candidates=tuple(
            Candidate(
                id=one.id,
                token=name(one.id),
                logit=one.logit,
                values=tuple(_value(stage, one.id) for stage in step.stages),
                alone=tuple(probs[at] for _, probs in alone),
            )
            for at, one in enumerate(best)
        ),
        stages=tuple(
            Shaped(
                name=stage.name,
                left=stage.left,
                entropy_bits=stage.entropy / math.log(2) if stage.measure == "logits" else None,
            )
            for stage in step.stages
        ),
        alone=tuple(shaped for shaped, _ in alone),
        chosen=step.chosen,
        chosen_token=name(step.chosen),
        draws=step.draws,
    )


def _value(stage: Stage, id_: int) -> float | None:
    for one in stage.top:
        if one.id == id_:
            return one.prob if stage.measure == "logits" else one.logit
    return 0.0 if stage.left <= len(stage.top) else None


def _alone(
    decoder: Decoder, ids: Sequence[int], candidates: list[int]
) -> list[tuple[Shaped, list[float]]]:
    """Each setting with what it gives the candidates."""
    stepper = Stepper(decoder, None)
    logits = stepper.feed(torch.tensor([list(ids)], dtype=torch.long, device=decoder.device))
    found = []
    for label, params in _ALONE:
        row = run_chain(make_processors(params, sampling=True), stepper.ids, logits)[0].double()
        probs = row.softmax(-1)
        bits = torch.special.entr(probs).sum().item() / math.log(2)
        shaped = Shaped(name=label, left=int(row.isfinite().sum()), entropy_bits=max(0.0, bits))
        found.append((shaped, probs[candidates].tolist()))
    return found
