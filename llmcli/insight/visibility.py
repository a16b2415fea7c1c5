"""The masks view: which keys each query sees, by layer kind.

Must not know torch: the rule is that of model/masks.py, which a test compares.
"""

from __future__ import annotations

from dataclasses import dataclass

from llmcli.insight.facts import Facts
from llmcli.insight.ranges import alike, written


@dataclass(frozen=True, slots=True, kw_only=True)
class Mask:
    """Layers that see alike. `visible[q][k]`: whether query q sees key k.

    It is None for layers that keep a state in place of keys. `sinks`: each head also weighs a
    learned number that stands for no key.
    """

    layers: str
    number: int
    kind: str
    window: int | None
    visible: tuple[tuple[bool, ...], ...] | None
    sinks: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Masks:
    """`length` queries and keys are drawn."""

    name: str
    length: int
    masks: tuple[Mask, ...]


def masks_of(facts: Facts, *, length: int, layer: int | None = None) -> Masks:
    """For a text of `length` tokens; only the kind of one `layer` where it is given."""
    spec = facts.spec
    found = []
    for (mixer, window), indices in alike((one.mixer, one.window) for one in spec.layers).items():
        if layer is not None and layer not in indices:
            continue
        state = mixer == "gated_delta"
        found.append(
            Mask(
                layers=written(indices),
                number=len(indices),
                kind="state" if state else "full" if window is None else "sliding",
                window=window,
                visible=None if state else visible(length, window),
                sinks=spec.sinks and not state,
            )
        )
    return Masks(name=facts.name, length=length, masks=tuple(found))


def visible(length: int, window: int | None) -> tuple[tuple[bool, ...], ...]:
    """0 <= query - key < window."""
    reach = length if window is None else window
    return tuple(
        tuple(0 <= query - key < reach for key in range(length)) for query in range(length)
    )
