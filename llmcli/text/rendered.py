"""A rendered chat: its text, and which stretches of it only look like control tokens.

Plain data between the chat template and the tokenizer; must know neither.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rendered:
    """`literals` are (start, end) spans of `text`, in order and apart, to be kept plain text."""

    text: str
    literals: tuple[tuple[int, int], ...] = ()
