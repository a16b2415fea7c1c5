"""Frozen dataclasses to JSON values and back, strictly: every field, no other, of its own type.

Must not know what the dataclasses mean, nor files.
"""

from __future__ import annotations

import math
import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from llmcli.checkpoint.escape import printable

_T = TypeVar("_T")


class PlainError(ValueError):
    """A value that does not fit; the text names its place, what it is and what it must be."""


def to_plain(value: Any) -> Any:
    """Dataclasses as objects, tuples as lists, all else as it is."""
    if is_dataclass(value) and not isinstance(value, type):
        return {one.name: to_plain(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, Mapping):
        return {key: to_plain(one) for key, one in value.items()}
    if isinstance(value, tuple | list):
        return [to_plain(one) for one in value]
    return value


def from_plain(kind: type[_T], value: Any, where: str = "") -> _T:
    """The dataclass whose `to_plain` is `value`. Raises PlainError where there is none."""
    made: _T = _read(kind, value, where)
    return made


def _read(kind: Any, value: Any, where: str) -> Any:
    origin, args = get_origin(kind), get_args(kind)
    if kind is Any:
        return value
    if origin in (Union, types.UnionType):
        return _read_union(args, value, where)
    if origin is Literal:
        if value in args and type(value) in {type(one) for one in args}:
            return value
        raise _wrong(where, value, f"one of {', '.join(map(str, args))}")
    if origin is tuple:
        return _read_tuple(args, value, where)
    if origin in (Mapping, dict, types.MappingProxyType) or kind is Mapping:
        return _read_mapping(args, value, where)
    if is_dataclass(kind):
        return _read_fields(kind, value, where)
    return _read_scalar(kind, value, where)


def _read_union(kinds: tuple[Any, ...], value: Any, where: str) -> Any:
    problems: list[PlainError] = []
    for kind in kinds:
        if kind is type(None):
            if value is None:
                return None
            continue
        try:
            return _read(kind, value, where)
        except PlainError as error:
            problems.append(error)
    raise problems[-1]


def _read_tuple(kinds: tuple[Any, ...], value: Any, where: str) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise _wrong(where, value, "a list")
    if len(kinds) == 2 and kinds[1] is Ellipsis:
        kinds = (kinds[0],) * len(value)
    if len(kinds) != len(value):
        raise _wrong(where, value, f"a list of {len(kinds)}")
    pairs = enumerate(zip(kinds, value, strict=True))
    return tuple(_read(kind, one, f"{where}[{at}]") for at, (kind, one) in pairs)


def _read_mapping(kinds: tuple[Any, ...], value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _wrong(where, value, "an object")
    return {key: _read(kinds[1], one, _inside(where, key)) for key, one in value.items()}


def _read_fields(kind: Any, value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise _wrong(where, value, "an object")
    names = [one.name for one in fields(kind)]
    if extra := [key for key in value if key not in names]:
        raise PlainError(f"{_inside(where, extra[0])} is not known")
    if lacking := [name for name in names if name not in value]:
        raise PlainError(f"{_inside(where, lacking[0])} is missing")
    hints = get_type_hints(kind)
    return kind(**{name: _read(hints[name], value[name], _inside(where, name)) for name in names})


def _read_scalar(kind: Any, value: Any, where: str) -> Any:
    names = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}
    if kind is float and type(value) is int and abs(value) < 2**53:
        value = float(value)
    if type(value) is not kind or (kind is int and abs(value) >= 2**63):
        raise _wrong(where, value, names[kind])
    if kind is float and not math.isfinite(value):
        raise _wrong(where, value, "a finite number")
    return value


def _inside(where: str, key: str) -> str:
    shown = printable(key, 40)
    return f"{where}.{shown}" if where else shown


def _wrong(where: str, value: Any, wanted: str) -> PlainError:
    return PlainError(f"{where or 'it'} is {printable(repr(value), 60)}; it must be {wanted}")
