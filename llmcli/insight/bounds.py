"""Numbers that have to lie in a range, and the one way to say that they do not."""

from __future__ import annotations

from llmcli.errors import UsageError


def check_index(option: str, value: int | None, count: int, what: str) -> None:
    """Raise UsageError where `value` is not the index of one of `count` things; None is fine."""
    if value is not None and not 0 <= value < count:
        raise UsageError(
            f"{option} is {value}, out of range: there are {count} {what}",
            hint=f"give 0 to {count - 1}" if count > 1 else "give 0, or leave it out",
        )


def check_between(option: str, value: int | None, least: int, most: int) -> None:
    """Raise UsageError where `value` does not lie in `least ... most`; None is fine."""
    if value is not None and not least <= value <= most:
        raise UsageError(
            f"{option} is {value}; it must lie between {least} and {most:,}",
            hint="leave it out for its default",
        )
