"""A report on stdout, in the form that was asked for."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from llmcli.cli import terminal
from llmcli.cli.benching import plot, rows, wording
from llmcli.cli.benching.asked import OutputForm

if TYPE_CHECKING:
    from llmcli.bench.report import Report


def print_report(report: Report, form: OutputForm) -> None:
    """Also of a trial that was broken off: as far as it came."""
    if form == "json":
        terminal.print_json(report.as_json())
    elif form == "jsonl":
        for row in rows.flat_rows(report):
            terminal.print_json(row)
    elif form == "csv":
        write_lines(rows.as_csv(report).splitlines())
    else:
        write_lines(_page(report, markdown=form == "markdown"))


def write_lines(lines: Sequence[str]) -> None:
    """Nothing for no lines."""
    if not lines:
        return
    answer = terminal.Answer()
    answer.write("\n".join(lines))
    answer.end()


def _page(report: Report, *, markdown: bool) -> list[str]:
    width = None if markdown else terminal.width(sys.stdout)
    bullet, head = ("* ", "## ") if markdown else ("", "")
    lines = [bullet + line for line in wording.machine_lines(report)]
    for one in report.strategies:
        for case in one.cases:
            table = wording.case_markdown(case) if markdown else wording.case_table(case, width)
            lines += ["", head + wording.case_title(one, case), *([""] if markdown else []), *table]
            lines += ["", *(bullet + line for line in wording.case_lines(case, report))]
        drawn = plot.plot(one.curves, width or 80, ascii_only=not _can_draw(len(one.curves)))
        fence = ["```"] if markdown and drawn else []
        lines += ["", *fence, *drawn, *fence, ""] if drawn else [""]
        lines += [bullet + line for line in wording.crossover_lines(one)]
    return lines


def _can_draw(count: int) -> bool:
    return not terminal.is_terminal(sys.stdout) or terminal.encodes(
        sys.stdout, plot.signs_needed(count)
    )
