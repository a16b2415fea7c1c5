"""The bytes that a cache of each kind takes, by formula: nothing is allocated.

`pieces` are the tokens of each forward in turn (a prefill's chunks, then ones), since a
quantised store packs between forwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from llmcli.spec.caching import GROWTH_STEP, RECENT, CacheKind, group_size
from llmcli.spec.decoder import DecoderSpec
from llmcli.spec.kept import kv_bytes_per_layer, kv_shape, state_bytes


def cache_bytes(
    kind: CacheKind,
    spec: DecoderSpec,
    pieces: Sequence[int],
    *,
    element_bytes: int,
    rows: int = 1,
    planned: int = 0,
) -> int:
    """Bytes held after these forwards, spare capacity included; what `KVCache.nbytes` says."""
    if kind == "none":
        return 0
    plain = kv_bytes_per_layer(spec, element_bytes)
    step = planned if kind == "static" and planned else GROWTH_STEP
    tokens = sum(pieces)
    total = 0
    for layer in spec.layers:
        if layer.mixer == "gated_delta":
            total += state_bytes(spec, element_bytes)
        elif layer.window is not None and kind != "growing":
            held = min(tokens, layer.window)
            total += min(_stepped(held, step), layer.window) * plain
        elif kind in ("quantized-8", "quantized-4"):
            room, packed = _quantized(pieces), packed_token_bytes(spec, kind, element_bytes)
            total += room.code_slots * packed + room.exact_slots * plain
        else:
            total += _stepped(tokens, step) * plain
    return rows * total


def bytes_spared(
    kind: CacheKind, spec: DecoderSpec, pieces: Sequence[int], *, element_bytes: int
) -> int:
    """By how much less the last of these forwards reads of a row's cache than of exact keys.

    A packed token is read as codes, scales and minima; what it is unpacked to is not counted.
    """
    if kind not in ("quantized-8", "quantized-4"):
        return 0
    full = sum(layer.mixer == "attention" and layer.window is None for layer in spec.layers)
    plain = kv_bytes_per_layer(spec, element_bytes)
    return (
        full * _quantized(pieces).packed * (plain - packed_token_bytes(spec, kind, element_bytes))
    )


def _stepped(needed: int, step: int) -> int:
    return -(-needed // step) * step


def packed_token_bytes(
    spec: DecoderSpec, kind: Literal["quantized-8", "quantized-4"], size: int
) -> int:
    """One token's codes in one layer, with a scale and a minimum of `size` bytes for each group."""
    heads, *widths = kv_shape(spec)
    bits = 8 if kind == "quantized-8" else 4
    codes = sum(-(-width * bits // 8) for width in widths)
    groups = sum(width // group_size(width) for width in widths)
    return heads * (codes + groups * 2 * size)


@dataclass(frozen=True, slots=True)
class _Quantized:
    """What a quantised store holds: packed tokens, and room for packed and for exact ones."""

    packed: int = 0
    code_slots: int = 0
    exact_slots: int = 0


def _quantized(pieces: Sequence[int]) -> _Quantized:
    length = packed = code_slots = exact_slots = 0
    for piece in pieces:
        held = length - packed
        if held >= 2 * RECENT:
            packed += held - RECENT
            held = RECENT
            code_slots = _stepped(packed, GROWTH_STEP)
            exact_slots = _stepped(RECENT, GROWTH_STEP)
        exact_slots = max(exact_slots, _stepped(held + piece, GROWTH_STEP))
        length += piece
    return _Quantized(packed, code_slots, exact_slots)
