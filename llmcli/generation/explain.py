"""Why each new token was chosen, as plain data: what every stage of the chain did to it.

Must not know text, terminals or strategies. A strategy fills a Recorder where it was given one;
where it was not, nothing here runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, Protocol

from torch import Tensor

from llmcli.generation.processors import Processor
from llmcli.generation.processors.narrow import run_narrowed

Measure = Literal["logits", "scores"]


@dataclass(frozen=True, slots=True)
class Candidate:
    """An id with its logit and its probability at some stage."""

    id: int
    logit: float
    prob: float


@dataclass(frozen=True, slots=True)
class Stage:
    """The distribution after one stage; before it was that of the stage that stands before.

    `top` are the likeliest of the `left` ids still possible. `cut` are the likeliest of the
    `num_cut` ids that this stage made impossible, with their numbers from before. `chosen` is
    the id that was chosen in the end, as it stood here. `entropy` is in nats. Where the measure
    is scores, they stand in place of logits, and probabilities and entropy mean nothing.
    """

    name: str
    top: tuple[Candidate, ...]
    left: int
    entropy: float
    cut: tuple[Candidate, ...] = ()
    num_cut: int = 0
    chosen: Candidate | None = None
    measure: Measure = "logits"


@dataclass(frozen=True, slots=True)
class Place:
    """Where the winning beam stood after a step: `rank` 1 is the best of the `kept` ones.

    `total` is the sum of its logprobs in the search, by which beams are ranked.
    """

    rank: int
    kept: int
    total: float


@dataclass(frozen=True, slots=True)
class Step:
    """One new token: `stages` begins with the model's own distribution.

    `rank` is the chosen id's place in that distribution, 1 the likeliest. `draws` are the
    uniform numbers that decided it; none where the likeliest was taken. `guess` is the id that
    speculative decoding had put in its place. `beam` is told by a beam search, whose stages are
    those of the row that the winning beam went on from.
    """

    stages: tuple[Stage, ...]
    chosen: int
    draws: tuple[float, ...] = ()
    guess: int | None = None
    rank: int = 1
    beam: Place | None = None


class Listener(Protocol):
    """Whoever is told what each stage of a chain left."""

    def stage(self, name: str, logits: Tensor) -> None:
        """A stage left these logits."""
        ...


class Recorder:
    """Collects a Step for each new token, with `count` candidates a stage.

    The step is there before its token is given; a run that is broken off may leave steps of
    tokens that were never given.
    """

    def __init__(self, count: int = 5) -> None:
        self.steps: list[Step] = []
        self.count = count
        self._draws: list[float] = []
        self._left: list[tuple[str, Tensor, Measure]] = []

    def begin(self, logits: Tensor) -> None:
        """A new token is to be chosen from the model's logits [1,V]."""
        self._left, self._draws = [], []
        self.stage("model", logits)

    def stage(self, name: str, logits: Tensor, measure: Measure = "logits") -> None:
        """A stage left these logits [1,V]."""
        self._left.append((name, logits[0], measure))

    def draw(self, uniform: float) -> None:
        """A uniform number was drawn for the choice."""
        self._draws.append(uniform)

    def finish(self, chosen: int, guess: int | None = None) -> None:
        """The choice was made."""
        self.steps.append(self.step(chosen, draws=tuple(self._draws), guess=guess))

    def step(
        self,
        chosen: int,
        *,
        draws: tuple[float, ...] = (),
        guess: int | None = None,
        beam: Place | None = None,
    ) -> Step:
        """What was taken down since `begin`, once the choice is known."""
        stages: list[Stage] = []
        before: Tensor | None = None
        for name, logits, measure in self._left:
            row = logits.double()
            stages.append(self._stage(name, row, measure, before, chosen))
            before = row
        model = self._left[0][1]
        rank = 1 + int((model > model[chosen]).sum())
        return Step(tuple(stages), chosen, draws, guess, rank, beam)

    def _stage(
        self, name: str, row: Tensor, measure: Measure, before: Tensor | None, chosen: int
    ) -> Stage:
        """Of logits [V], and those of the stage before."""
        probs, logprobs = row.softmax(-1), row.log_softmax(-1)
        possible = row.isfinite()
        gone = possible & False if before is None else before.isfinite() & ~possible
        old = row if before is None else before
        return Stage(
            name,
            self._likeliest(row, probs, possible),
            int(possible.sum()),
            # 0 * -inf is nothing: an id that was cut adds no surprise.
            max(0.0, -(probs * logprobs).nan_to_num(0.0).sum().item()),
            self._likeliest(old, old.softmax(-1), gone),
            int(gone.sum()),
            Candidate(chosen, row[chosen].item(), probs[chosen].item())
            if possible[chosen]
            else None,
            measure,
        )

    def _likeliest(self, row: Tensor, probs: Tensor, among: Tensor) -> tuple[Candidate, ...]:
        count = min(self.count, int(among.sum()))
        best = row.masked_fill(~among, float("-inf")).topk(count)
        numbers = (best.indices.tolist(), best.values.tolist(), probs[best.indices].tolist())
        found = (Candidate(*one) for one in zip(*numbers, strict=True))
        # Of equals the lowest id first, as the choice of the best has it.
        return tuple(sorted(found, key=lambda one: (-one.logit, one.id)))


def run_chain(
    chain: Iterable[tuple[str, Processor]],
    ids: Tensor,
    logits: Tensor,
    listener: Listener | None = None,
) -> Tensor:
    """The logits [B,V] after every processor, in order; the listener is told of each."""
    return run_narrowed(chain, ids, logits, None if listener is None else listener.stage)
