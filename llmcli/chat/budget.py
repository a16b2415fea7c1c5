"""What of a conversation fits into the context: whole turns go, the oldest first, or none.

Counts only. Must not know how tokens are counted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from llmcli.errors import GenerationError
from llmcli.plurals import counted

Overflow = Literal["drop-oldest", "stop", "shift"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """A context of so many tokens, of which `reserve` are kept for the reply."""

    context: int
    reserve: int

    @classmethod
    def of(cls, context: int, max_new_tokens: int) -> Budget:
        """A reply that may be longer than a quarter of the context has that quarter for sure."""
        return cls(context=context, reserve=max(1, min(max_new_tokens, context // 4)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """The oldest `drop` turns go; then the prompt has `used` tokens."""

    drop: int
    used: int


def fit(turns: int, count: Callable[[int], int], *, budget: Budget, overflow: Overflow) -> Fit:
    """The fewest of `turns` turns to drop, so that the prompt leaves room for the reply.

    `count(drop)` is the length of the whole prompt, rendered without the oldest `drop` turns: the
    template decides what a turn costs, and it falls as `drop` rises. Under `stop` nothing is
    dropped, and one token of room is enough; `shift` is about the reply alone.

    Raises GenerationError with the numbers where that cannot be.
    """
    used = count(0)
    room = budget.context - (1 if overflow == "stop" else budget.reserve)
    if used <= room:
        return Fit(drop=0, used=used)
    least = count(turns) if turns else used
    if least > room:
        kept = budget.context - room
        raise GenerationError(
            f"the message is too long: with the template's own tokens and the system message it "
            f"makes {least}; the context holds {budget.context}, of which {kept} {_are(kept)} "
            "kept for the reply",
            hint=f"shorten it by at least {counted(least - room, 'token')}"
            + ("" if kept == 1 else ", or keep less for the reply with max-new-tokens"),
        )
    if overflow == "stop":
        raise GenerationError(
            f"the conversation would have {used} tokens; the context holds {budget.context}, and "
            "one is needed for the reply",
            hint="undo or clear some of it, or let old turns go with --overflow drop-oldest",
        )
    # Invariant: dropping `low` is too few, dropping `high` is enough
    low, high, sizes = 0, turns, {turns: least}
    while high - low > 1:
        middle = (low + high) // 2
        sizes[middle] = count(middle)
        low, high = (low, middle) if sizes[middle] <= room else (middle, high)
    return Fit(drop=high, used=sizes[high])


def _are(count: int) -> str:
    return "is" if count == 1 else "are"
