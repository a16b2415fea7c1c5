"""The params view as text and as bars."""

from __future__ import annotations

from llmcli.cli.columns import folded, table
from llmcli.cli.inspecting.asked import Asked
from llmcli.cli.inspecting.drawing import Drawing
from llmcli.cli.inspecting.subject import Subject
from llmcli.cli.inspecting.svg import Svg, bars
from llmcli.cli.sizes import share
from llmcli.insight.params import Params, count_parts


def _compute(subject: Subject, _: Asked) -> Params:
    return count_parts(subject.facts)


def _lines(found: Params, width: int | None) -> list[str]:
    several = len(found.kinds) > 1
    marks = [f"A LAYER OF {chr(65 + at)}" for at in range(len(found.kinds))]
    header = ("PART", "PARAMETERS", "SHARE", *(marks if several else ["A LAYER"]))
    rows: list[tuple[str, ...]] = []
    for group, count in found.groups.items():
        parts = [part for part in found.parts if part.group == group]
        layered = [sum(part.by_kind[at] for part in parts) for at in range(len(found.kinds))]
        rows.append((group, f"{count:,}", share(count, found.total), *map(_count, layered)))
        if len(parts) > 1:
            rows += [
                (
                    f"  {part.part}",
                    f"{part.count:,}",
                    share(part.count, found.total),
                    *map(_count, part.by_kind),
                )
                for part in parts
            ]
    if found.tied_head:
        rows.append(("unembedding", "tied to the embedding", "", *[""] * len(found.kinds)))
    each = [f"{kind.parameters:,}" for kind in found.kinds]
    rows.append(("total", f"{found.total:,}", "100.0%", *each))
    rows.append(
        (
            "of it weight matrices",
            f"{found.matrices:,}",
            share(found.matrices, found.total),
            *[""] * len(found.kinds),
        )
    )
    if found.active != found.total:
        active = (f"{found.active:,}", share(found.active, found.total))
        rows.append(("a token goes through", *active, *[""] * len(found.kinds)))
    lines = table(header, rows, width)
    if several:
        lines.append("")
        lines += [
            f"{chr(65 + at)}: layer{'s' * (kind.number > 1)} {kind.layers} ({kind.number:,} in all)"
            for at, kind in enumerate(found.kinds)
        ]
    if found.note:
        lines += ["", *folded(found.note, width, first="note: ")]
    return lines


def _count(count: int) -> str:
    return f"{count:,}" if count else "-"


def _pictures(found: Params) -> list[Svg]:
    rows = [
        (
            part.group if part.part == part.group else f"{part.group}: {part.part}",
            float(part.count),
            f"{part.count:,} ({share(part.count, found.total)})",
        )
        for part in found.parts
    ]
    return [bars(f"{found.name}: {found.total:,} parameters", rows)]


DRAWING = Drawing(compute=_compute, lines=_lines, pictures=_pictures)
