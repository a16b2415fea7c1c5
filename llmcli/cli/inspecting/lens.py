"""The lens view: a row a layer, a column a position."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmcli.cli.columns import folded, table
from llmcli.cli.inspecting.asked import Asked
from llmcli.cli.inspecting.drawing import Drawing
from llmcli.cli.inspecting.subject import Subject
from llmcli.cli.inspecting.svg import Svg
from llmcli.cli.inspecting.svg_grid import word_grid
from llmcli.cli.inspecting.token_words import compact, position_of, quoted
from llmcli.cli.progress import StepProgress
from llmcli.errors import UsageError
from llmcli.insight.bounds import check_between

if TYPE_CHECKING:
    from llmcli.insight.lens import Cell, Lens, LensRow

_LAST, _MOST = 12, 4096
_CELL = 10  # columns of a token's text


def _compute(subject: Subject, asked: Asked) -> Lens:
    check_between("--last", asked.last, 1, _MOST)
    end = position_of(subject, asked.position)
    if asked.position is not None and asked.last is not None:
        raise UsageError(
            "--position and --last both say which tokens to look at", hint="give one of them"
        )
    last = 1 if asked.position is not None else asked.last or _LAST
    ids, decoder = subject.prompt.ids, subject.engine.loaded.decoder
    import torch

    from llmcli.insight.lens import look

    with StepProgress("reading the layers") as bar:
        return look(
            decoder,
            torch.tensor([ids], device=decoder.device),
            positions=range(max(0, end + 1 - last), end + 1),
            name=subject.token_text,
            on_progress=bar,
        )


def _lines(found: Lens, width: int | None) -> list[str]:
    about = (
        "What the model would say after each token, were a layer the last: its stream through "
        "the final norm and the head. The last row is the model's own answer."
    )
    if len(found.positions) == 1:
        return [*folded(about, width), "", *_one(found, width)]
    lines, left = folded(about, width), len(_label(found.rows[0])) + 2
    wide = _CELL + 7
    fit = len(found.positions) if width is None else max(1, (width - left) // wide)
    for start in range(0, len(found.positions), fit):
        lines += ["", *_block(found, slice(start, start + fit), width)]
    return lines


def _block(found: Lens, columns: slice, width: int | None) -> list[str]:
    heads = [
        f"{at} {compact(text, _CELL)}"
        for at, text in zip(found.positions[columns], found.inputs[columns], strict=True)
    ]
    rows = [
        (
            _label(row),
            *(f"{compact(cell.token, _CELL)} {_percent(cell.prob)}" for cell in row.cells[columns]),
        )
        for row in found.rows
    ]
    return table(("", *heads), rows, width)


def _one(found: Lens, width: int | None) -> list[str]:
    """A single position has room for how the model's answer does at each layer."""
    answer = quoted(found.rows[-1].cells[0].token)
    header = ("", "likeliest", "", f"{answer} has", "at rank")
    rows = []
    for row in found.rows:
        (cell,) = row.cells
        rows.append(
            (
                _label(row),
                quoted(cell.token),
                _percent(cell.prob),
                _percent(cell.end_prob),
                f"{cell.end_rank:,}",
            )
        )
    after = f"After token {found.positions[0]}, {quoted(found.inputs[0])}:"
    return [after, "", *table(header, rows, width, left=(0, 1))]


def _pictures(found: Lens) -> list[Svg]:
    def note(row: LensRow, at: int, cell: Cell) -> str:
        return (
            f"{_label(row)}, after {quoted(found.inputs[at])}: {quoted(cell.token)} "
            f"{_percent(cell.prob)}; the model's answer is at rank {cell.end_rank}"
        )

    return [
        word_grid(
            "logit lens: rows are layers, columns tokens; the fuller the ground, the likelier",
            [[(compact(cell.token, _CELL), cell.prob) for cell in row.cells] for row in found.rows],
            rows=[_label(row) for row in found.rows],
            columns=[
                f"{at} {compact(text, _CELL)}"
                for at, text in zip(found.positions, found.inputs, strict=True)
            ],
            notes=[
                [note(row, at, cell) for at, cell in enumerate(row.cells)] for row in found.rows
            ],
        )
    ]


def _label(row: LensRow) -> str:
    return "embedding" if row.layer is None else f"layer {row.layer}"


def _percent(prob: float) -> str:
    return f"{100 * prob:.0f}%" if prob >= 0.0995 else f"{100 * prob:.1f}%"


DRAWING = Drawing(compute=_compute, lines=_lines, pictures=_pictures)
