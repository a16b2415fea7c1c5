"""Dataclasses to JSON values and back: strict, and every field of Flags survives."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest

from llmcli.engine.flags import Flags
from llmcli.engine.plain import PlainError, from_plain, to_plain


@dataclass(frozen=True)
class Inner:
    n: int


@dataclass(frozen=True)
class Outer:
    flag: bool
    x: float
    name: str | None
    kind: Literal["a", "b"]
    many: tuple[Inner, ...]
    pair: tuple[int, float]
    table: Mapping[str, Inner]


WHOLE = Outer(True, 1.5, None, "b", (Inner(1), Inner(2)), (3, 0.5), {"k": Inner(4)})


def samples(kind: Any) -> list[Any]:
    """Values of a type, None left out."""
    origin, args = get_origin(kind), get_args(kind)
    if origin is Literal:
        return list(args)
    if origin is tuple:
        return [tuple(samples(args[0])[:2]), ()]
    if args and (origin is Union or type(kind).__name__ == "UnionType"):
        return [value for one in args if one is not type(None) for value in samples(one)]
    return {int: [3, 0], float: [0.5, 0.0], str: ["x\x1b[bold]", ""], bool: [True, False]}[kind]


@pytest.mark.parametrize("name", [one.name for one in fields(Flags)])
def test_every_flag_survives(name: str) -> None:
    found = samples(get_type_hints(Flags)[name])
    assert found
    for value in found:
        flags = Flags(**{name: value})
        again = from_plain(Flags, json.loads(json.dumps(to_plain(flags))))
        assert again == flags
        assert type(getattr(again, name)) is type(value)
    with pytest.raises(PlainError, match=f"{name} is"):
        from_plain(Flags, {**to_plain(Flags()), name: {"odd": 1}})


def test_nested() -> None:
    assert from_plain(Outer, json.loads(json.dumps(to_plain(WHOLE)))) == WHOLE


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"flag": 1}, "flag is 1; it must be true or false"),
        ({"x": "1"}, "x is '1'; it must be a number"),
        ({"x": True}, "x is True; it must be a number"),
        ({"x": float("inf")}, "x is inf; it must be a finite number"),
        ({"name": 3}, "name is 3; it must be a text"),
        ({"kind": "c"}, "kind is 'c'; it must be one of a, b"),
        ({"many": {}}, "many is {}; it must be a list"),
        ({"many": [{"n": 1}, {"n": 1.5}]}, "many[1].n is 1.5; it must be a whole number"),
        ({"many": [{"n": True}]}, "many[0].n is True; it must be a whole number"),
        ({"many": [{"n": 2**64}]}, "many[0].n is 18446744073709551616; it must be a whole"),
        ({"many": [{}]}, "many[0].n is missing"),
        ({"many": [{"n": 1, "\x1bm": 1}]}, "many[0].\\x1bm is not known"),
        ({"pair": [1]}, "pair is [1]; it must be a list of 2"),
        ({"table": {"k": 1}}, "table.k is 1; it must be an object"),
        ({"table": []}, "table is []; it must be an object"),
    ],
)
def test_what_does_not_fit_is_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(PlainError) as raised:
        from_plain(Outer, {**to_plain(WHOLE), **change})
    assert message in str(raised.value)


def test_a_whole_number_may_stand_for_a_number() -> None:
    again = from_plain(Outer, {**to_plain(WHOLE), "x": 2})
    assert again.x == 2.0
    assert type(again.x) is float
