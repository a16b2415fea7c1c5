"""Untrusted names made printable: no control code from a file ever reaches a message.

Must not know terminals; it only turns strings into safe strings.
"""

from __future__ import annotations

from collections.abc import Iterable


def printable(name: str, limit: int = 120) -> str:
    """`name` with every non-printable character escaped, cut to `limit` characters."""
    safe = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)
    return safe if len(safe) <= limit else safe[: limit - 1] + "…"


def shortlist(names: Iterable[str], limit: int = 6) -> str:
    """The first `limit` names in a comma list, and how many more there are."""
    listed = [printable(name) for name in names]
    more = f" (+{len(listed) - limit} more)" if len(listed) > limit else ""
    return ", ".join(listed[:limit]) + more
