"""Control codes made visible, so that no text can drive the terminal it is shown on.

Must not know streams. Only newline and tab pass; everything else in C0 and C1 is replaced.
"""

from __future__ import annotations

# Control pictures for C0 and DEL; C1 has none, so it is spelled out.
_VISIBLE = {
    **{code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\n\t"},
    0x7F: "\u2421",
    **{code: f"\\x{code:02x}" for code in range(0x80, 0xA0)},
}


def visible(text: str) -> str:
    """`text` with each control code but newline and tab replaced by something printable."""
    return text.translate(_VISIBLE)


def visible_line(text: str) -> str:
    """The same for what has to stay one line: newline and tab are replaced as well."""
    return visible(text).replace("\n", "\u240a").replace("\t", "\u2409")


class ControlCodes:
    """The same over pieces of a stream; a carriage return before a newline is dropped.

    Each code is replaced on its own, so a sequence cut over two pieces cannot slip through.
    """

    def __init__(self) -> None:
        self._return = ""

    def feed(self, piece: str) -> str:
        text = self._return + piece
        self._return = "\r" if text.endswith("\r") else ""
        return visible(text[: len(text) - len(self._return)].replace("\r\n", "\n"))

    def flush(self) -> str:
        rest, self._return = self._return, ""
        return visible(rest)
