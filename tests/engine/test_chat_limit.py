"""What goes where a reply outgrows the context: whole turns between what stays."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from llmcli.engine.chat_limit import shift_limit
from llmcli.generation.limit import SINKS, Limit

HEAD, TURN, BODY = [1, 2, 3, 4, 5], [6, 7, 8, 9], [6, 0, 0]


def plain(drop: int) -> Sequence[int]:
    return [*HEAD, *TURN * (10 - drop), *BODY]


@pytest.mark.parametrize(
    ("most", "parts"), [(1, (16,)), (16, (16,)), (17, (16, 16)), (99, (16, 16, 8))]
)
def test_no_more_turns_than_a_reply_needs(most: int, parts: tuple[int, ...]) -> None:
    # The first id of a turn is common to all renderings, and stays with the head
    limit, gone = shift_limit(plain, drop=0, turns=10, most=most, size=64)
    assert gone == sum(parts) // 4
    assert limit == Limit(64, head=6, parts=parts, body=42 - sum(parts))
    assert limit.fixed == len(plain(0)) - sum(parts)
    assert shift_limit(plain, drop=9, turns=10, most=most, size=64)[0].parts == (4,)


def test_the_parts_taken_out_give_the_shorter_rendering() -> None:
    limit, _ = shift_limit(plain, drop=0, turns=10, most=99, size=64)
    ids = list(plain(0))
    for part, drop in zip(limit.parts, (4, 8, 10), strict=True):
        del ids[limit.head : limit.head + part]
        assert ids == plain(drop)


def test_a_message_alone_stays() -> None:
    assert shift_limit(plain, drop=10, turns=10, most=9, size=64) == (Limit(64, head=8), 10)


def test_turns_that_are_rendered_unlike_before_go_by_tokens() -> None:
    def numbered(drop: int) -> Sequence[int]:
        return [*HEAD, *(n for at in range(10 - drop) for n in (100 + at - drop, 7)), *BODY]

    assert shift_limit(numbered, drop=0, turns=10, most=99, size=64) == (Limit(64, head=5), 10)


def test_no_common_beginning_leaves_the_first_few() -> None:
    def none(drop: int) -> Sequence[int]:
        return [drop, *BODY]

    assert shift_limit(none, drop=0, turns=3, most=9, size=64) == (Limit(64, head=SINKS), 3)
