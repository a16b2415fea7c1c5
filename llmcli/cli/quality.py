"""`llmcli quantize --report`: a text read and checked, the cost of packing measured and told."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from llmcli.checkpoint.escape import printable
from llmcli.cli import interrupts, terminal
from llmcli.cli.options import ReportForm
from llmcli.cli.progress import StepProgress
from llmcli.cli.prompt_input import read_whole
from llmcli.cli.quality_page import Page
from llmcli.errors import UsageError
from llmcli.plurals import counted
from llmcli.spec import PackingKind

if TYPE_CHECKING:
    from llmcli.acquire.resolve import Resolved
    from llmcli.engine.quality import Measured, Quality

_BUILT_IN = "built in"


def read_text(path: Path | None) -> tuple[str, str] | None:
    """The text of --text, and its name; None where none is given. Raises UsageError."""
    if path is None:
        return None
    named = "standard input" if str(path) == "-" else printable(str(path))
    text = read_whole(path, f"--text {named}")
    if not text.strip():
        raise UsageError(
            f"--text {named} is empty", hint="give a text of some hundred tokens, or leave it out"
        )
    return text, named


class QualityReport:
    """A checkpoint and a text that can be measured, told before any weight is read."""

    def __init__(self, found: Resolved, given: tuple[str, str] | None) -> None:
        """`given` is as `read_text` gives it. Raises as `Quality` does."""
        from llmcli.engine.quality import FEW_TOKENS, Quality, built_in_text

        text, self._named = given or (built_in_text(), _BUILT_IN)
        self._model, self._sha256 = found.name, hashlib.sha256(text.encode("utf-8")).hexdigest()
        what = "the built-in text" if given is None else f"--text {self._named}"
        self._quality: Quality = Quality(found, text, what=what)
        if (tokens := self._quality.tokens) < FEW_TOKENS:
            terminal.note(
                f"warning: only {counted(tokens, 'token')} predicted, which tells little; "
                f"give a text of {FEW_TOKENS} or more"
            )

    def show(
        self,
        kinds: Sequence[PackingKind],
        form: ReportForm,
        *,
        group: int,
        folder: Path | None = None,
    ) -> int:
        """0; 130 where Ctrl-C ended it, with what was measured by then."""
        done: list[Measured] = []
        try:
            for kind in kinds:
                done.append(self._measure(kind, group, folder))
        except KeyboardInterrupt:
            if not done:
                raise
            interrupts.acknowledge()
            terminal.note(f"broken off: {kinds[len(done)]} was not measured")
        self._write(done, form, folder)
        return 0 if len(done) == len(kinds) else interrupts.INTERRUPTED

    def _measure(self, kind: PackingKind, group: int, folder: Path | None) -> Measured:
        with StepProgress(f"measuring {kind}") as bar:
            return self._quality.measure(
                kind,
                group=group,
                folder=folder,
                on_progress=lambda done, total, what: bar(done, total, what),
            )

    def _write(self, done: Sequence[Measured], form: ReportForm, folder: Path | None) -> None:
        page = Page(
            model=self._model,
            text=self._named,
            sha256=self._sha256,
            tokens=self._quality.tokens,
            windows=len(self._quality.windows),
            longest=max(len(window.ids) for window in self._quality.windows),
            stored=self._quality.stored,
            measured=done,
            folder=folder,
        )
        if form == "json":
            terminal.print_json(page.as_json())
            return
        answer = terminal.Answer()
        answer.write("\n".join(page.lines(form, terminal.width(sys.stdout))))
        answer.end()
