"""Rows and the values that they are tried with, where a full product would prove little more.

The row that stands for its family meets every value. The others meet some always, and the rest
in turns, so that the rows of a family share them out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.families.rows import ROWS


def in_turns(
    names: str, values: Sequence[Any], *, always: Sequence[Any] = (), standing: Sequence[Any]
) -> pytest.MarkDecorator:
    """Parametrize `row` and `names`: `always` and one of `values`, or all of `standing`."""
    several = "," in names
    cases = []
    for at, row in enumerate(ROWS):
        chosen = dict.fromkeys((*always, values[at % len(values)]))
        for value in standing if row.bfloat16 else chosen:
            told = "-".join(map(str, value if several else (value,)))
            given = value if several else (value,)
            cases.append(pytest.param(row, *given, id=f"{row.name}-{told}"))
    return pytest.mark.parametrize(f"row,{names}", cases)
