"""The check view: a line a finding; exit code 1 where one is an error."""

from __future__ import annotations

from llmcli.checkpoint.directory import ModelDir
from llmcli.cli.columns import folded
from llmcli.cli.inspecting.asked import Asked
from llmcli.cli.inspecting.drawing import Drawing
from llmcli.cli.inspecting.subject import Subject
from llmcli.cli.progress import StepProgress
from llmcli.insight.check import Check, check
from llmcli.plurals import counted


def _compute(subject: Subject, asked: Asked) -> Check:
    assert subject.folder is not None
    with StepProgress("reading the weights") as bar:
        return check(
            subject.facts, ModelDir.open(subject.folder), values=asked.values, on_progress=bar
        )


def _lines(found: Check, width: int | None) -> list[str]:
    wide = max(len(one.about) for one in found.findings) + 2
    lines = []
    for one in found.findings:
        first = f"{one.level:<9}{one.about:<{wide}}"
        lines += folded(one.text, width, first=first, rest=" " * len(first))
    counts = f"{_times(found.errors, 'error')}, {_times(found.warnings, 'warning')}"
    return [*lines, "", counts]


def _times(count: int, what: str) -> str:
    return counted(count, what) if count else f"no {what}s"


def _failed(found: Check) -> bool:
    return found.errors > 0


DRAWING = Drawing(compute=_compute, lines=_lines, failed=_failed)
