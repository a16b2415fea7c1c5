"""How one token was chosen, laid out as lines: candidates down, stages across.

Pure: numbers and a way to name ids in, lines out. Must not know streams.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llmcli.generation.explain import Candidate, Stage, Step

Name = Callable[[int], str]

_CELL = 6  # "0.1234"
_MOST_LABEL = 24
_MOST_BAR = 24
_LEAST_BAR = 6
_INDENT = "  "
_GAP = "  "


@dataclass(frozen=True, slots=True)
class Marks:
    """The signs beyond letters and digits; `eighths` fill a cell from the left."""

    unknown: str
    more: str
    full: str
    eighths: str


UNICODE = Marks("·", "…", "█", " ▏▎▍▌▋▊▉")
ASCII = Marks("-", "...", "#", " ")


@dataclass(frozen=True, slots=True)
class Line:
    """One line; `kind` tells how it may be painted."""

    text: str
    kind: str = ""


def step_lines(number: int, step: Step, name: Name, *, width: int, marks: Marks) -> Iterator[Line]:
    """A headline, a table of as many pieces as the width needs, and who was cut by what."""
    quoted = _Quoted(name, min(_MOST_LABEL, max(width // 3, 8)), marks)
    yield Line(_headline(number, step, quoted), "headline")
    ids = _shown(step)
    labels = {id_: quoted(id_) for id_ in ids}
    margin = max(map(_cells, [*labels.values(), "entropy"]))
    pieces = list(_pieces(step.stages, width - len(_INDENT) - 2 - margin))
    for piece in pieces:
        room = width - len(_INDENT) - 2 - margin - sum(_width(one) + len(_GAP) for one in piece)
        last = piece[-1] if piece is pieces[-1] else None
        yield Line(_row("", margin, piece, [stage.name for stage in piece]))
        for id_ in ids:
            cells = [_cell(id_, stage, step.stages, marks) for stage in piece]
            text = _row(labels[id_], margin, piece, cells, chosen=id_ == step.chosen)
            bar = _bar(id_, last, min(room - len(_GAP), _MOST_BAR), marks)
            yield Line(f"{text}{_GAP}{bar}".rstrip(), "chosen" if id_ == step.chosen else "")
        yield Line(_row("entropy", margin, piece, [_entropy(stage) for stage in piece]))
        yield Line(_row("left", margin, piece, [str(stage.left) for stage in piece]))
    for stage in step.stages:
        if stage.num_cut:
            yield Line(_cut(stage, quoted, width, marks))


class _Quoted:
    """Ids as quoted, escaped texts that fit a width."""

    def __init__(self, name: Name, width: int, marks: Marks) -> None:
        self._name, self._width, self._marks = name, width, marks

    def __call__(self, id_: int) -> str:
        return _shortened(repr(self._name(id_)), self._width, self._marks.more)


def _headline(number: int, step: Step, quoted: _Quoted) -> str:
    facts = [f"{number}  {quoted(step.chosen)}", f"rank {step.rank}"]
    if step.draws:
        facts.append("drawn at " + ", ".join(f"{draw:.4f}" for draw in step.draws))
    if step.guess == step.chosen:
        facts.append("guess kept")
    elif step.guess is not None:
        facts.append(f"guess {quoted(step.guess)} replaced")
    if step.beam is not None:
        place = step.beam
        facts.append(f"beam {place.rank} of {place.kept}, total {place.total:.3f}")
    return _GAP.join(facts)


def _shown(step: Step) -> list[int]:
    """The model's likeliest, those likeliest in the end, the guess and the choice."""
    found = [one.id for stage in (step.stages[0], step.stages[-1]) for one in stage.top]
    more = [one for one in (step.guess, step.chosen) if one is not None]
    return list(dict.fromkeys([*found, *more]))


def _pieces(stages: Sequence[Stage], room: int) -> Iterator[list[Stage]]:
    """As many stages at a time as fit side by side, one at least."""
    piece: list[Stage] = []
    used = 0
    for stage in stages:
        more = _width(stage) + len(_GAP)
        if piece and used + more > room:
            yield piece
            piece, used = [], 0
        piece.append(stage)
        used += more
    yield piece


def _width(stage: Stage) -> int:
    return max(len(stage.name), _CELL, len(str(stage.left)))


def _row(
    label: str, margin: int, piece: list[Stage], cells: list[str], *, chosen: bool = False
) -> str:
    padded = label + " " * (margin - _cells(label))
    numbers = (f"{cell:>{_width(stage)}}" for cell, stage in zip(cells, piece, strict=True))
    start = f"{_INDENT}{'> ' if chosen else '  '}{padded}"
    return (start + "".join(_GAP + one for one in numbers)).rstrip()


def _cell(id_: int, stage: Stage, stages: Sequence[Stage], marks: Marks) -> str:
    found = _candidate(id_, stage)
    if found is not None:
        return f"{found.prob:.4f}" if stage.measure == "logits" else f"{found.logit:.3f}"
    if any(one.id == id_ for one in stage.cut):
        return "cut"
    earlier = stages[: stages.index(stage)]
    gone = any(cut.id == id_ for one in earlier for cut in one.cut)
    return "" if gone else marks.unknown


def _candidate(id_: int, stage: Stage) -> Candidate | None:
    known = (*stage.top, *([stage.chosen] if stage.chosen else []))
    return next((one for one in known if one.id == id_), None)


def _entropy(stage: Stage) -> str:
    return f"{stage.entropy:.3f}" if stage.measure == "logits" else ""


def _bar(id_: int, stage: Stage | None, width: int, marks: Marks) -> str:
    """The probability after the last stage; a whole bar is 1."""
    found = None if stage is None else _candidate(id_, stage)
    if found is None or stage is None or stage.measure == "scores" or width < _LEAST_BAR:
        return ""
    parts = len(marks.eighths)
    whole, rest = divmod(round(found.prob * width * parts), parts)
    return marks.full * whole + (marks.eighths[rest] if rest else "")


def _cut(stage: Stage, quoted: _Quoted, width: int, marks: Marks) -> str:
    """How many a stage cut, and the likeliest of them, as many as one line holds."""
    text = f"{_INDENT}{stage.name} cut {stage.num_cut}:"
    told = 0
    for one in stage.cut:
        longer = f"{text} {quoted(one.id)} {one.prob:.4f}"
        if _cells(longer) + 1 + len(marks.more) > width:
            break
        text, told = longer, told + 1
    return text if told == stage.num_cut else f"{text} {marks.more}"


def _shortened(text: str, width: int, more: str) -> str:
    if _cells(text) <= width:
        return text
    kept = ""
    for char in text:
        if _cells(kept + char) + len(more) > width:
            break
        kept += char
    return kept + more


def _cells(text: str) -> int:
    from rich.cells import cell_len

    return cell_len(text)
