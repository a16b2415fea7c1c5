"""What the Tab key offers: commands, their arguments, file names.

Must not know what the commands do; their table says what their arguments are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Literal

from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document

# Words so far -> words to offer, or file names.
Words = Callable[[list[str]], Iterable[str]]
Offer = Words | Literal["file"] | None


class SlashCompleter(Completer):
    """Completes in a line that begins with a slash, and nowhere else."""

    def __init__(self, offers: Mapping[str, Offer]) -> None:
        self._offers = offers
        self._paths = PathCompleter(expanduser=True)

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        before = document.text_before_cursor
        if not before.startswith("/") or before.startswith("//") or "\n" in before:
            return
        name, space, argument = before.partition(" ")
        if not space:
            yield from _matching(name, self._offers)
            return
        offer = self._offers.get(name)
        if offer == "file":
            inner = Document(argument, len(argument))
            yield from self._paths.get_completions(inner, complete_event)
        elif offer is not None:
            words = argument.split(" ")
            yield from _matching(words[-1], offer(words[:-1]))


def _matching(begun: str, words: Iterable[str]) -> Iterable[Completion]:
    for word in words:
        if word.startswith(begun):
            yield Completion(word, start_position=-len(begun))
