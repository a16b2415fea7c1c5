"""The masks view, drawn with a mark for each key that a query sees."""

from __future__ import annotations

from llmcli.cli.columns import folded
from llmcli.cli.inspecting.asked import Asked
from llmcli.cli.inspecting.drawing import Drawing
from llmcli.cli.inspecting.subject import Subject
from llmcli.cli.inspecting.svg import Svg, heat_map
from llmcli.insight.bounds import check_between, check_index
from llmcli.insight.visibility import Mask, Masks, masks_of
from llmcli.plurals import counted

_LENGTH, _MOST = 12, 256
_SEEN, _HIDDEN = "#", "."


def _compute(subject: Subject, asked: Asked) -> Masks:
    check_index("--layer", asked.layer, subject.facts.spec.num_layers, "layers")
    check_between("--length", asked.length, 1, _MOST)
    return masks_of(subject.facts, length=asked.length or _LENGTH, layer=asked.layer)


def _lines(found: Masks, width: int | None) -> list[str]:
    legend = f"Rows are queries, columns keys: {_SEEN} is seen, {_HIDDEN} is not."
    lines = folded(legend, width)
    for mask in found.masks:
        lines += ["", *folded(_title(mask, found.length), width)]
        if mask.visible is not None:
            lines += [*_grid(mask.visible, width)]
    return lines


def _title(mask: Mask, length: int) -> str:
    title = f"layers {mask.layers}" if mask.number > 1 else f"layer {mask.layers}"
    if mask.window is None:
        title += ": a state, no mask" if mask.kind == "state" else ": full, all earlier tokens"
    else:
        title += f": sliding over {mask.window:,}"
        if mask.window >= length:
            title += f", more than the {counted(length, 'token')} drawn (--length N draws N)"
    return title + (", and a sink beside the keys" if mask.sinks else "")


def _grid(visible: tuple[tuple[bool, ...], ...], width: int | None) -> list[str]:
    """Spaced where there is room; a grid that is too wide is not drawn wrapped."""
    label = len(str(len(visible) - 1))
    for gap in (" ", ""):
        if width is None or label + 1 + len(visible) * (1 + len(gap)) <= width:
            return [
                f"{query:>{label}} {gap.join(_SEEN if seen else _HIDDEN for seen in row)}"
                for query, row in enumerate(visible)
            ]
    return [f"(this terminal has {width} columns, too few for {len(visible)} keys)"]


def _pictures(found: Masks) -> list[Svg]:
    names = [str(at) for at in range(found.length)]
    return [
        heat_map(
            f"{found.name}, {_title(mask, found.length)}; rows are queries, columns keys",
            [[float(seen) for seen in row] for row in mask.visible],
            rows=names,
            columns=names,
            scale=False,
            notes=[
                [f"query {q} {'sees' if seen else 'does not see'} key {k}" for k, seen in row]
                for q, row in enumerate(map(list, map(enumerate, mask.visible)))
            ],
        )
        for mask in found.masks
        if mask.visible is not None
    ]


DRAWING = Drawing(compute=_compute, lines=_lines, pictures=_pictures)
