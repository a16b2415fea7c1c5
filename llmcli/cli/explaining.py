"""--explain: why each token was chosen, for a person on stderr and as plain values for --json.

Must not know tensors.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from llmcli.cli import terminal
from llmcli.cli.explain_table import ASCII, UNICODE, Name, step_lines
from llmcli.cli.options import OUTPUT, flag, whole_option
from llmcli.errors import UsageError

if TYPE_CHECKING:
    from llmcli.generation.explain import Candidate, Stage, Step

_DEFAULT_TOP = 5
# Where nobody's terminal says how wide a line may be.
_WIDTH = 100
# Headline and chosen row; nothing else is painted.
_STYLES = {"headline": "1", "chosen": "32", "": ""}

Explain = Annotated[
    bool,
    flag(
        "--explain",
        help="Tell how each token was chosen: candidates, what every stage did, the draw.",
        panel=OUTPUT,
    ),
]
ExplainTop = Annotated[
    int | None,
    whole_option("--explain-top", "N", "With N candidates a stage [default: 5].", OUTPUT),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Explaining:
    """Whether the choices are explained, and how widely."""

    explain: Explain = False
    explain_top: ExplainTop = None

    def count(self) -> int:
        """Candidates a stage; 0 where nothing is to be explained. Raises UsageError."""
        if self.explain_top is None:
            return _DEFAULT_TOP if self.explain else 0
        if not self.explain:
            raise UsageError("--explain-top has no effect without --explain", hint="add --explain")
        if self.explain_top < 1:
            raise UsageError(
                f"--explain-top is {self.explain_top}; it must be at least 1",
                hint="leave it out for 5",
            )
        return self.explain_top


def tell_steps(steps: list[Step], name: Name) -> None:
    """A block of lines for each token on stderr, as wide as that is."""
    width = terminal.width(sys.stderr) or _WIDTH
    marks = UNICODE if terminal.encodes(sys.stderr, "█▏…·") else ASCII
    if not steps:
        terminal.note("nothing to explain: there is no new token")
    for number, step in enumerate(steps, 1):
        for line in step_lines(number, step, name, width=width, marks=marks):
            terminal.note(line.text, style=_STYLES[line.kind])


def steps_as_json(steps: list[Step], name: Name) -> list[dict[str, Any]]:
    """One object a token. Entropies are in nats."""
    return [_step(step, name) for step in steps]


def _step(step: Step, name: Name) -> dict[str, Any]:
    guess, beam = step.guess, step.beam
    return {
        "id": step.chosen,
        "token": name(step.chosen),
        "rank": step.rank,
        "draws": list(step.draws),
        "guess": None
        if guess is None
        else {"id": guess, "token": name(guess), "kept": guess == step.chosen},
        "beam": None
        if beam is None
        else {"rank": beam.rank, "kept": beam.kept, "total": beam.total},
        "stages": [_stage(stage, name) for stage in step.stages],
    }


def _stage(stage: Stage, name: Name) -> dict[str, Any]:
    def listed(found: tuple[Candidate, ...]) -> Iterator[dict[str, Any]]:
        for one in found:
            number = "logit" if stage.measure == "logits" else "score"
            yield {"id": one.id, "token": name(one.id), number: one.logit, **_prob(stage, one)}

    chosen = (stage.chosen,) if stage.chosen else ()
    return {
        "name": stage.name,
        "left": stage.left,
        "entropy": stage.entropy if stage.measure == "logits" else None,
        "top": list(listed(stage.top)),
        "chosen": next(listed(chosen), None),
        "num_cut": stage.num_cut,
        "cut": [
            {"id": one.id, "token": name(one.id), "prob_before": one.prob} for one in stage.cut
        ],
    }


def _prob(stage: Stage, one: Candidate) -> dict[str, float]:
    return {"prob": one.prob} if stage.measure == "logits" else {}
