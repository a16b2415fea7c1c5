'''Messages of several lines between `"""` marks. Must not know where lines come from.'''

from __future__ import annotations

from collections.abc import Callable

from llmcli.cli.chatting.typed import Typed

MARK = '"""'


def is_open(text: str) -> bool:
    """Whether `text` begins a block that it does not close."""
    begun = text.lstrip()
    return begun.startswith(MARK) and MARK not in begun[len(MARK) :]


def typed(text: str) -> Typed:
    """The message inside a block; any other text, such as code with a docstring, as it is."""
    begun = text.lstrip()
    if not begun.startswith(MARK):
        return Typed(text)
    inside, _, after = begun[len(MARK) :].partition(MARK)
    if after.strip():
        return Typed(text, verbatim=True)
    return Typed(inside.removeprefix("\n").removesuffix("\n"), verbatim=True)


def completed(first: str, more: Callable[[], str]) -> Typed:
    """`first` with the lines that its block needs; an EOFError of `more` ends the block too."""
    text = first
    while is_open(text):
        try:
            text += "\n" + more()
        except EOFError:
            break
    return typed(text)
