"""Rows and the values that they are tried with, where a full product would prove little more.

The row that stands for its family meets every value. The others meet some always, and the rest
in turns, so that the rows of a family share them out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from tests.families.rows import ROWS
from tests.oracle import Row


def in_turns(
    names: str, values: Sequence[Any], *, always: Sequence[Any] = (), standing: Sequence[Any]
) -> pytest.MarkDecorator:
    """Parametrize `row` and `names`: `always` and one of `values`, or all of `standing`."""
    several = "," in names
    cases = []
    for row, met in _met(values, always, standing):
        for value in met:
            told = "-".join(map(str, value if several else (value,)))
            given = value if several else (value,)
            cases.append(pytest.param(row, *given, id=f"{row.name}-{told}"))
    return pytest.mark.parametrize(f"row,{names}", cases)


def turns(
    name: str, values: Sequence[Any], *, always: Sequence[Any] = (), standing: Sequence[Any]
) -> pytest.MarkDecorator:
    """One case a row: `name` is all that `in_turns` would have the row meet.

    For short checks, as each case costs some milliseconds of its own.
    """
    cases = [pytest.param(row, met, id=row.name) for row, met in _met(values, always, standing)]
    return pytest.mark.parametrize(f"row,{name}", cases)


def _met(
    values: Sequence[Any], always: Sequence[Any], standing: Sequence[Any]
) -> Iterator[tuple[Row, Sequence[Any]]]:
    for at, row in enumerate(ROWS):
        chosen = tuple(dict.fromkeys((*always, values[at % len(values)])))
        yield row, tuple(standing) if row.bfloat16 else chosen
