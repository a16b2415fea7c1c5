"""Fields with ranges: a neutral default, the values allowed, and the refusal of others."""

from __future__ import annotations

import math
from dataclasses import field, fields
from typing import Any

from llmcli.errors import UsageError


def ranged(
    default: Any,
    low: float = 0,
    high: float = math.inf,
    *,
    above: bool = False,
    sampling: bool = False,
) -> Any:
    """A neutral default and the range in which values lie; `above` leaves `low` itself out.

    `sampling` marks what is read only where a token is drawn.
    """
    limits = {"low": low, "high": high, "above": above}
    return field(default=default, metadata={"limits": limits, "sampling": sampling})


def check_ranges(settings: Any) -> None:
    """Raise UsageError naming the first value of a dataclass that lies outside its range."""
    for one in fields(settings):
        value = getattr(settings, one.name)
        if one.metadata and value is not None:
            _check(one.name.replace("_", "-"), value, **one.metadata["limits"])


def check_value(kind: Any, name: str, value: float) -> None:
    """Raise UsageError where `value` lies outside the range of one field of a dataclass."""
    one = next(one for one in fields(kind) if one.name == name)
    _check(name.replace("_", "-"), value, **one.metadata["limits"])


def _check(name: str, value: float, *, low: float, high: float, above: bool) -> None:
    # NaN fails every comparison, so it is refused as well; infinity is never a setting.
    inside = low < value <= high if above else low <= value <= high
    if inside and not math.isinf(value):
        return
    if math.isinf(high) and math.isinf(low):
        wanted = "be a finite number"
    elif math.isinf(high):
        wanted = f"be {'above' if above else 'at least'} {low:g} and finite"
    else:
        wanted = f"lie between {low:g}{' (left out)' if above else ''} and {high:g}"
    raise UsageError(
        f"{name} is {value:g}; it must {wanted}",
        hint="leave it out for its default",
    )
