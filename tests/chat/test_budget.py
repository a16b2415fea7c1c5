"""Which turns go: whole ones, the oldest, as few as will do; or none, with the numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmcli.chat.budget import Budget, Fit, fit
from llmcli.errors import GenerationError


@pytest.mark.parametrize(
    ("context", "new", "reserve"),
    [(64, 8, 8), (64, 256, 16), (64, 64, 16), (64, 0, 1), (2, 9, 1), (1, 9, 1)],
)
def test_what_is_kept_for_the_reply(context: int, new: int, reserve: int) -> None:
    assert Budget.of(context, new) == Budget(context=context, reserve=reserve)


@given(
    turns=st.lists(st.integers(1, 30), max_size=12),
    fixed=st.integers(0, 40),
    context=st.integers(8, 200),
    new=st.integers(0, 99),
)
def test_the_fewest_of_the_oldest(turns: list[int], fixed: int, context: int, new: int) -> None:
    budget = Budget.of(context, new)

    def count(drop: int) -> int:
        return fixed + sum(turns[drop:])

    enough = [drop for drop in range(len(turns) + 1) if count(drop) + budget.reserve <= context]
    if not enough:
        with pytest.raises(GenerationError, match="too long"):
            fit(len(turns), count, budget=budget, overflow="drop-oldest")
        return
    found = fit(len(turns), count, budget=budget, overflow="drop-oldest")
    assert found == Fit(drop=enough[0], used=count(enough[0]))


def test_a_long_history_is_not_rendered_for_each_turn() -> None:
    asked: list[int] = []

    def count(drop: int) -> int:
        asked.append(drop)
        return 10 * (1000 - drop)

    budget = Budget(context=100, reserve=10)
    assert fit(1000, count, budget=budget, overflow="drop-oldest").drop == 991
    assert len(asked) < 15
    asked.clear()
    assert fit(1000, lambda drop: asked.append(drop) or 5, budget=budget, overflow="stop").drop == 0
    assert asked == [0]


def test_stop_drops_nothing() -> None:
    budget = Budget(context=100, reserve=20)
    for used in (80, 81, 99):
        assert fit(3, lambda _: used, budget=budget, overflow="stop").used == used  # noqa: B023
    with pytest.raises(GenerationError) as caught:
        fit(3, lambda drop: 100 if drop < 3 else 30, budget=budget, overflow="stop")
    assert caught.value.message == (
        "the conversation would have 100 tokens; the context holds 100, and one is needed for the "
        "reply"
    )


def test_a_message_too_long_is_refused_with_the_numbers() -> None:
    with pytest.raises(GenerationError) as caught:
        fit(2, lambda _: 213, budget=Budget(context=64, reserve=16), overflow="drop-oldest")
    assert caught.value.message == (
        "the message is too long: with the template's own tokens and the system message it makes "
        "213; the context holds 64, of which 16 are kept for the reply"
    )
    assert caught.value.hint.startswith("shorten it by at least 165 tokens")
