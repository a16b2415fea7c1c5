"""One token, two tokens."""

from __future__ import annotations


def plural(count: int, word: str) -> str:
    """`word` as it stands after this number."""
    return word if count == 1 else f"{word}s"


def counted(count: int, word: str) -> str:
    """The number with its word, such as `1 token` or `1,024 tokens`."""
    return f"{count:,} {plural(count, word)}"
