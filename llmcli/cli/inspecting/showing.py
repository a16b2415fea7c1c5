"""Chosen views, computed one after the other, as text, as JSON and as files."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

from llmcli.checkpoint.escape import printable
from llmcli.cli import interrupts, terminal
from llmcli.cli.files import check_target, write_whole
from llmcli.cli.inspecting.asked import Asked
from llmcli.cli.inspecting.drawing import Drawing
from llmcli.cli.inspecting.subject import Subject
from llmcli.cli.inspecting.svg import page, stacked
from llmcli.cli.inspecting.table import VIEWS, View, load_drawing
from llmcli.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """Where the views go besides the text on stdout, or JSON in its place."""

    json: bool = False
    html: Path | None = None
    svg: Path | None = None


def check_targets(views: list[View], targets: Targets) -> None:
    """Raise UsageError for a file that cannot be written, or a view without a picture."""
    for option, path in (("--html", targets.html), ("--svg", targets.svg)):
        if path is not None:
            check_target(option, path)
    if targets.svg is None:
        return
    if len(views) > 1:
        raise UsageError(
            f"--svg takes the picture of one view, not of {len(views)}",
            hint="give one --view, or --html for a page of all",
        )
    if load_drawing(views[0]).pictures is None:
        able = [view.name for view in VIEWS if load_drawing(view).pictures is not None]
        raise UsageError(
            f"view {views[0].name} has no picture",
            hint=f"views with a picture: {', '.join(able)}; --html takes any view",
        )


def show(views: list[View], subject: Subject, asked: Asked, targets: Targets) -> int:
    """Compute and show; 0, 1 where a view found a fault, 130 where Ctrl-C cut one short."""
    drawings = {view: load_drawing(view) for view in views}
    results: dict[View, Any] = {}
    for view, drawing in drawings.items():
        results[view] = drawing.compute(subject, asked)
    if targets.json:
        terminal.print_json({view.name: as_json(result) for view, result in results.items()})
    else:
        _print(drawings, results)
    if targets.svg is not None:
        ((view, drawing),) = drawings.items()
        assert drawing.pictures is not None
        write_whole(targets.svg, stacked(drawing.pictures(results[view])).document())
    if targets.html is not None:
        write_whole(targets.html, _page(subject, drawings, results))
    if any(drawing.interrupted(results[view]) for view, drawing in drawings.items()):
        return interrupts.INTERRUPTED
    return int(any(drawing.failed(results[view]) for view, drawing in drawings.items()))


def _print(drawings: Mapping[View, Drawing[Any]], results: Mapping[View, Any]) -> None:
    width = _width()
    answer = terminal.Answer()
    blocks = []
    for view, drawing in drawings.items():
        title = [f"== {view.name} ==", ""] if len(drawings) > 1 else []
        blocks.append("\n".join(title + drawing.lines(results[view], width)))
    answer.write("\n\n".join(blocks))
    answer.end()


def _width() -> int | None:
    """The columns to fit into, or None where the text goes to no terminal."""
    if not terminal.is_terminal(sys.stdout):
        return None
    import shutil

    return shutil.get_terminal_size().columns


def _page(
    subject: Subject, drawings: Mapping[View, Drawing[Any]], results: Mapping[View, Any]
) -> str:
    parts = []
    for view, drawing in drawings.items():
        result = results[view]
        pictures = drawing.pictures(result) if drawing.pictures else []
        parts.append((view.name, view.help, pictures, drawing.lines(result, None)))
    return page(f"llmcli inspect-layers: {subject.facts.name}", parts)


def as_json(value: Any) -> Any:
    """Dataclasses as objects, tuples as lists; a number that is not finite is null."""
    if is_dataclass(value):
        return {one.name: as_json(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): as_json(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [as_json(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    assert value is None or isinstance(value, str | int | float | bool), printable(repr(value))
    return value
