"""What was typed: a message, a slash command, or nothing. Must not know which commands exist."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Typed:
    """One message as it was typed; `verbatim` is never a command (it stood in a block)."""

    text: str
    verbatim: bool = False

    @property
    def command(self) -> tuple[str, str] | None:
        """Name with its slash, and argument, where this is a command."""
        begun = self.text.lstrip()
        if self.verbatim or not begun.startswith("/") or begun.startswith("//"):
            return None
        name, _, argument = begun.rstrip().partition(" ")
        first, newline, rest = name.partition("\n")
        return first, (rest + " " + argument if newline else argument).strip()

    @property
    def message(self) -> str:
        """The message; `//` at its beginning stands for `/`."""
        begun = self.text.lstrip()
        escaped = not self.verbatim and begun.startswith("//")
        return begun[1:] if escaped else self.text


class PressedError(Exception):
    """Ctrl-C at the prompt; `empty` is whether nothing had been typed."""

    def __init__(self, *, empty: bool) -> None:
        super().__init__("Ctrl-C at the prompt")
        self.empty = empty
