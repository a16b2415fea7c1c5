"""Several answers to one prompt on stdout: in order of their seeds, as text or as one JSON list."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llmcli.cli import interrupts, terminal


class SamplePrinter:
    """Takes samples as they finish and shows each once all before it have been shown.

    As text, a line `[sample 2 of 3, seed 8]` stands before each, and an empty line between two.
    """

    def __init__(self, count: int, *, as_list: bool, raw: bool) -> None:
        self._count, self._as_list, self._raw = count, as_list, raw
        self._waiting: dict[int, Mapping[str, Any]] = {}
        self._shown: list[Mapping[str, Any]] = []

    def add(self, record: Mapping[str, Any]) -> None:
        with interrupts.held():
            self._waiting[record["sample"]] = record
            while (following := self._waiting.pop(len(self._shown), None)) is not None:
                self._show(following)

    def close(self) -> None:
        """The end, maybe early: what waits for a sample that never came is shown as well."""
        for sample in sorted(self._waiting):
            self._show(self._waiting[sample])
        if self._as_list:
            terminal.print_json(self._shown)

    def _show(self, record: Mapping[str, Any]) -> None:
        self._shown.append(record)
        if self._as_list:
            return
        answer = terminal.Answer(raw=self._raw)
        gap = "\n" if len(self._shown) > 1 else ""
        number = record["sample"] + 1
        answer.write(f"{gap}[sample {number} of {self._count}, seed {record['seed']}]\n")
        answer.write(record["text"])
        answer.end()
