"""Markdown of a reply as styled text, block by block as the blocks are complete.

Must not know streams. Control codes are made visible before anything is rendered.
"""

from __future__ import annotations

import re
import shutil

from llmcli.cli.control_codes import visible

_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})")


class MarkdownBlocks:
    """Feed text, write what comes back; blocks are parted by one empty line."""

    def __init__(self, *, colour: bool) -> None:
        self._colour = colour
        self._pending = ""
        self._begun = False

    def feed(self, text: str) -> str:
        """The blocks that are now complete, rendered."""
        self._pending += text
        shown = ""
        while done := _complete(self._pending):
            block, self._pending = self._pending[:done], self._pending[done:]
            shown += self._rendered(block)
        return shown

    def flush(self) -> str:
        """The last block."""
        block, self._pending = self._pending, ""
        return self._rendered(block)

    def _rendered(self, block: str) -> str:
        shown = _render(visible(block), colour=self._colour) if block.strip() else ""
        parted = "\n\n" if self._begun and shown else ""
        self._begun = self._begun or bool(shown)
        return parted + shown


def _complete(text: str) -> int:
    """Where the first block ends, once no further text can change it; else 0.

    A block ends at an empty line outside of a code fence, where the next line is not indented.
    """
    fence, empty, at = "", False, 0
    for line in text.splitlines(keepends=True):
        if empty and not fence and not line[:1].isspace() and text[:at].strip():
            return at
        mark = _FENCE.match(line)
        if mark and not fence:
            fence = mark[1]
        elif mark and mark[1][0] == fence[0] and len(mark[1]) >= len(fence):
            fence = ""
        empty = not line.strip() and line.endswith("\n")
        at += len(line)
    return 0


def _render(text: str, *, colour: bool) -> str:
    from rich.color import ColorSystem
    from rich.console import Console
    from rich.markdown import Markdown

    width = shutil.get_terminal_size().columns or 80
    console = Console(width=width, markup=False, emoji=False, highlight=False)
    colours = ColorSystem.STANDARD if colour else None
    # A hyperlink would be an escape sequence with the model's own address in it.
    segments = console.render(Markdown(text, hyperlinks=False))
    styled = [
        one.style.render(one.text, color_system=colours) if one.style else one.text
        for one in segments
    ]
    return "\n".join(line.rstrip() for line in "".join(styled).splitlines()).strip("\n")
