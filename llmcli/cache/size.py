"""The bytes that a cache of each kind takes, by formula: nothing is allocated.

`pieces` are the tokens of each forward in turn (a prefill's chunks, then ones), since a
quantised store packs between forwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from llmcli.cache.buffer import GROWTH_STEP
from llmcli.cache.make import CacheKind
from llmcli.cache.packed import group_size
from llmcli.cache.quantized import RECENT
from llmcli.spec import DecoderSpec, kv_bytes_per_layer, kv_shape, state_bytes


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
            packed = packed_token_bytes(spec, kind, element_bytes)
            total += _quantized(pieces, packed_token=packed, exact_token=plain)
        else:
            total += _stepped(tokens, step) * plain
    return rows * total


def _stepped(needed: int, step: int) -> int:
    return -(-needed // step) * step


def packed_token_bytes(
    spec: DecoderSpec, kind: Literal["quantized-8", "quantized-4"], size: int
) -> int:
    """One token's codes in one layer, with a scale and a minimum of `size` bytes for each group."""
    bits = 8 if kind == "quantized-8" else 4
    heads, *widths = kv_shape(spec)
    codes = sum(-(-width * bits // 8) for width in widths)
    groups = sum(width // group_size(width) for width in widths)
    return heads * (codes + groups * 2 * size)


def _quantized(pieces: Sequence[int], *, packed_token: int, exact_token: int) -> int:
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
    return code_slots * packed_token + exact_slots * exact_token
