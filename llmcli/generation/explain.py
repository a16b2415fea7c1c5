"""Why each new token was chosen, as plain data: what every stage of the chain did to it.

Must not know text, terminals or strategies. A strategy fills a Recorder where it was given one;
where it was not, nothing here runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from torch import Tensor

from llmcli.generation.processors import Processor


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
    `num_cut` ids that this stage made impossible, with their numbers from before. `entropy` is
    in nats.
    """

    name: str
    top: tuple[Candidate, ...]
    left: int
    entropy: float
    cut: tuple[Candidate, ...] = ()
    num_cut: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """One new token: `stages` begins with the model's own distribution.

    `draws` are the uniform numbers that decided it; none where the likeliest was taken.
    `guess` is the id that speculative decoding had put in its place.
    """

    stages: tuple[Stage, ...]
    chosen: int
    draws: tuple[float, ...] = ()
    guess: int | None = None


class Recorder:
    """Collects a Step for each new token, with `count` candidates a stage.

    The step is there before its token is given; a speculative run that is broken off may leave
    steps of tokens that were never given.
    """

    def __init__(self, count: int = 5) -> None:
        self.steps: list[Step] = []
        self._count = count
        self._stages: list[Stage] = []
        self._draws: list[float] = []
        self._logits: Tensor | None = None

    def begin(self, logits: Tensor) -> None:
        """A new token is to be chosen from the model's logits [1,V]."""
        self._stages = []
        self._draws = []
        self._logits = None
        self.stage("model", logits)

    def stage(self, name: str, logits: Tensor) -> None:
        """A stage left these logits [1,V]."""
        before, self._logits = self._logits, logits
        row = logits[0].double()
        probs, logprobs = row.softmax(-1), row.log_softmax(-1)
        possible = row.isfinite()
        cut = () if before is None else self._cut(before[0].double(), possible)
        gone = 0 if before is None else int((before[0].isfinite() & ~possible).sum())
        self._stages.append(
            Stage(
                name,
                self._likeliest(row, probs, possible),
                int(possible.sum()),
                # 0 * -inf is nothing: an id that was cut adds no surprise.
                max(0.0, -(probs * logprobs).nan_to_num(0.0).sum().item()),
                cut,
                gone,
            )
        )

    def draw(self, uniform: float) -> None:
        """A uniform number was drawn for the choice."""
        self._draws.append(uniform)

    def finish(self, chosen: int, guess: int | None = None) -> None:
        """The choice was made."""
        self.steps.append(Step(tuple(self._stages), chosen, tuple(self._draws), guess))

    def _cut(self, before: Tensor, possible: Tensor) -> tuple[Candidate, ...]:
        return self._likeliest(before, before.softmax(-1), before.isfinite() & ~possible)

    def _likeliest(self, row: Tensor, probs: Tensor, among: Tensor) -> tuple[Candidate, ...]:
        count = min(self._count, int(among.sum()))
        best = row.masked_fill(~among, float("-inf")).topk(count)
        numbers = (best.indices.tolist(), best.values.tolist(), probs[best.indices].tolist())
        found = (Candidate(*one) for one in zip(*numbers, strict=True))
        # Of equals the lowest id first, as the choice of the best has it.
        return tuple(sorted(found, key=lambda one: (-one.logit, one.id)))


def run_chain(
    chain: Iterable[tuple[str, Processor]],
    ids: Tensor,
    logits: Tensor,
    recorder: Recorder | None = None,
) -> Tensor:
    """The logits [B,V] after every processor, in order; each is told to the recorder."""
    for name, process in chain:
        logits = process(ids, logits)
        if recorder is not None:
            recorder.stage(name, logits)
    return logits
