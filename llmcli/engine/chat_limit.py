"""Which tokens of a chat's prompt go while its reply outgrows the context: whole turns first.

Must not know messages or templates: a prompt is ids, rendered without its oldest turns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from llmcli.generation.limit import SINKS, Limit


def shift_limit(
    render: Callable[[int], Sequence[int]], *, drop: int, turns: int, most: int, size: int
) -> tuple[Limit, int]:
    """The limit for `render(drop)`, the ids without the oldest `drop` of `turns` turns.

    The second value is how many turns may be gone in the end, those `drop` included.

    What begins every rendering (the system message) stays, and so does the message to be answered.
    Turns between them go whole and oldest first, about a quarter of the context at a time and
    `most` tokens at most; then the beginning of the reply goes. Where the template renders what
    is left of the turns unlike before, tokens go that are no whole turns, behind the beginning.
    """
    whole = render(drop)
    if drop == turns:
        return Limit(size, head=len(whole)), drop
    head = _common(whole, render(turns))
    if head < SINKS:
        return Limit(size), turns
    wanted, cuts = max(1, (size - head) // 4), [drop]
    while cuts[-1] < turns and len(whole) - len(render(cuts[-1])) < most:
        cuts.append(_fewest(render, cuts[-1], turns, wanted))
    left = [render(cut) for cut in cuts]
    parts = tuple(len(before) - len(after) for before, after in pairwise(left))
    for (before, after), part in zip(pairwise(left), parts, strict=True):
        if part <= 0 or [*before[:head], *before[head + part :]] != list(after):
            return Limit(size, head=head), turns
    return Limit(size, head=head, parts=parts, body=len(left[-1]) - head), cuts[-1]


def _fewest(render: Callable[[int], Sequence[int]], drop: int, turns: int, wanted: int) -> int:
    """The fewest turns to leave out for `wanted` tokens fewer than without `drop`; or all."""
    at_most = len(render(drop)) - wanted
    low, high = drop, turns
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if len(render(middle)) <= at_most else (middle, high)
    return high


def _common(one: Sequence[int], two: Sequence[int]) -> int:
    """How many ids both begin with."""
    pairs = enumerate(zip(one, two, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(two)))
