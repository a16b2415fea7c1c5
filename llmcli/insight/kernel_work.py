"""What steps in compiled kernels hold besides weights and cache: the kernels' own arithmetic
(kernels/rooms.py) on a spec. Must not know torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from llmcli.kernels.rooms import Sizes, reach, room_bytes, rooms, scratch_of, unit_of
from llmcli.spec import (
    INT4_GROUP,
    CacheKind,
    DecoderSpec,
    PackingKind,
    int8_group,
    matrices,
    parameter_shapes,
)


@dataclass(frozen=True, slots=True)
class Kernels:
    """So many threads run whole steps of a decoder, of at most so many tokens at once."""

    threads: int
    most_tokens: int


@dataclass(frozen=True, slots=True)
class Packed:
    """Which matrices are packed, and the columns of an int4 group."""

    kinds: Mapping[str, PackingKind]
    group: int


NOTHING: Final = Packed({}, INT4_GROUP)


def tokens_together(spec: DecoderSpec, kernels: Kernels, kind: CacheKind, most: int) -> int:
    """Of pieces of at most `most` tokens, how many tokens the kernels get at once: none where the
    cache is packed or elsewhere, and one at a time where a layer keeps them in a ring.
    """
    if kind in ("quantized-8", "quantized-4", "offloaded"):
        return 0
    ring = spec.windowed and kind in ("ring", "static")
    return 1 if ring else min(most, kernels.most_tokens)


def kernel_bytes(
    spec: DecoderSpec, kernels: Kernels, packed: Packed, *, tokens: int, keys: int
) -> int:
    """For steps of `tokens` at once, and of one, of which each sees `keys` at most."""
    # The streams come, are worked on and go; cos and sin of each token lie beside them.
    turns = {layer.rope: 2 * layer.rope.dim for layer in spec.layers if layer.rope}
    streams = 4 * tokens * (3 * spec.hidden_size + sum(turns.values()))
    return streams + kept_bytes(spec, kernels, packed, tokens=tokens, keys=keys)


def kept_bytes(
    spec: DecoderSpec, kernels: Kernels, packed: Packed, *, tokens: int, keys: int
) -> int:
    """What the kernels themselves take once and keep."""
    sizes = _sizes(spec, packed)
    return room_bytes(rooms(sizes, team=kernels.threads, tokens=tokens, keys=reach(keys)))


def _sizes(spec: DecoderSpec, packed: Packed) -> Sizes:
    shapes = parameter_shapes(spec)
    units, scratch = [1], [1]
    for name in matrices(spec):
        if name.startswith("layers."):
            columns = shapes[name][1]
            unit = _unit(packed, name, columns)
            units.append(unit)
            scratch.append(scratch_of(columns, unit))
    return Sizes(
        hidden=spec.hidden_size,
        inner=spec.intermediate_size,
        heads=spec.num_heads,
        kv_heads=spec.num_kv_heads,
        head_dim=spec.head_dim,
        unit=max(units),
        scratch=max(scratch),
    )


def _unit(packed: Packed, name: str, columns: int) -> int:
    """Columns that the kernels read together, as model/matrices.py has it; tested."""
    match packed.kinds.get(name):
        case "int4":
            return unit_of(packed.group)
        case "int8" if (group := int8_group(columns)) != columns:
            return unit_of(group)
    return unit_of(None)
