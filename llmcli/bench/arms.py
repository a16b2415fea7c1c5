"""An arm: one way to keep keys and values, measured beside the others. Must not import torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llmcli.errors import UsageError
from llmcli.spec import CacheKind

_NAMED: dict[str, CacheKind] = {
    "off": "none",
    "growing": "growing",
    "static": "static",
    "ring": "ring",
    "quantized-8": "quantized-8",
    "quantized-4": "quantized-4",
    "offloaded": "offloaded",
}
ARM_NAMES = ("on", *_NAMED)


@dataclass(frozen=True, slots=True)
class Arm:
    """`name` as it was asked for; `on` is the kind that a model uses by itself."""

    name: str
    kind: CacheKind


def make_arms(names: Sequence[str], usual: CacheKind) -> tuple[Arm, ...]:
    """`usual` is what `on` means. Raises UsageError for a name that is unknown or stands twice."""
    check_names(names)
    named: dict[str, CacheKind] = {"on": usual, **_NAMED}
    return tuple(Arm(name, named[name]) for name in names)


def check_names(names: Sequence[str]) -> None:
    """Raise UsageError for a name that is unknown or stands twice, or for none at all."""
    for name in names:
        if name not in ARM_NAMES:
            raise UsageError(
                f"--arms has {name!r}; an arm is one of {', '.join(ARM_NAMES)}",
                hint="--arms on,off compares the usual cache with none",
            )
    if len(set(names)) < len(names) or not names:
        raise UsageError(
            f"--arms is {','.join(names)!r}; it must name each arm once",
            hint="--arms on,off compares the usual cache with none",
        )
