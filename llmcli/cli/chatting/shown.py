"""One reply on its way to stdout: reasoning dim or hidden, Markdown rendered where asked for.

Must not know models. What is shown never changes what is kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from llmcli.cli import interrupts, terminal
from llmcli.cli.chatting.markdown import MarkdownBlocks
from llmcli.cli.chatting.reasoning import Part, Reasoning

Think = Literal["show", "hide"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """How replies are shown. Markdown is rendered on a terminal only."""

    think: Think = "show"
    markdown: bool = False
    raw_output: bool = False


class Shown:
    """The text of one reply. `prompt` is the text that it continues."""

    def __init__(self, look: Look, *, prompt: str) -> None:
        self._output = terminal.Answer(raw=look.raw_output)
        self._reasoning = Reasoning(prompt)
        self._hides = look.think == "hide"
        renders = look.markdown and terminal.is_terminal(self._output.stream)
        self._blocks = MarkdownBlocks(colour=self._output.styled) if renders else None
        self._length = 0
        self._after_hidden = False
        self._ended = False
        self.hidden = 0

    @property
    def begun(self) -> bool:
        """Whether the reply has any text yet, shown or hidden."""
        return self._length > 0

    @property
    def unfinished(self) -> bool:
        """Whether the reply is, so far, in the middle of its reasoning."""
        return self._reasoning.open

    def add(self, piece: str) -> None:
        """Show one more piece; an interruption neither loses nor doubles it."""
        with interrupts.held():
            self._length += len(piece)
            self._show(self._reasoning.feed(piece))

    def catch_up(self, whole: str) -> None:
        """Show what the whole text has more than the pieces had."""
        self.add(whole[self._length :])

    def end(self) -> None:
        """No more comes; to end twice does nothing."""
        if self._ended:
            return
        self._ended = True
        self._show(self._reasoning.flush())
        if self._blocks is not None:
            self._output.write_rendered(self._blocks.flush())
        self._output.end()

    def _show(self, parts: list[Part]) -> None:
        for text, reasoning in parts:
            if reasoning and self._hides:
                self.hidden += len(text)
                self._after_hidden = True
                continue
            # The empty lines that part hidden reasoning from the answer part nothing.
            shown = text.lstrip("\n") if self._after_hidden else text
            self._after_hidden = self._after_hidden and not shown
            if self._blocks is None or reasoning:
                self._output.write(shown, dim=reasoning)
            else:
                self._output.write_rendered(self._blocks.feed(shown))
