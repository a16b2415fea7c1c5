"""The bytes that a cache of each kind takes, by formula: nothing is allocated.

`pieces` are the tokens of each forward in turn (a prefill's chunks, then ones), since a
quantised store packs between forwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llmcli.cache.buffer import GROWTH_STEP
from llmcli.cache.make import CacheKind
from llmcli.cache.packed import group_size
from llmcli.cache.quantized import RECENT
from llmcli.spec import DecoderSpec


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
    pair = _Pair.of(spec, element_bytes)
    step = planned if kind == "static" and planned else GROWTH_STEP
    tokens = sum(pieces)
    total = 0
    for layer in spec.layers:
        if layer.mixer == "gated_delta":
            total += _state(spec, element_bytes)
        elif layer.window is not None and kind != "growing":
            held = min(tokens, layer.window)
            total += min(_stepped(held, step), layer.window) * pair.plain
        elif kind in ("quantized-8", "quantized-4"):
            total += _quantized(pieces, pair, 8 if kind == "quantized-8" else 4)
        else:
            total += _stepped(tokens, step) * pair.plain
    return rows * total


def _stepped(needed: int, step: int) -> int:
    return -(-needed // step) * step


@dataclass(frozen=True, slots=True)
class _Pair:
    """Key and value of one token in one layer: heads, widths of a head, bytes of a number."""

    heads: int
    widths: tuple[int, int]
    size: int

    @classmethod
    def of(cls, spec: DecoderSpec, size: int) -> _Pair:
        if (latent := spec.latent) is not None:
            return cls(spec.num_heads, (latent.nope_dim + latent.rope_dim, latent.value_dim), size)
        return cls(spec.num_kv_heads, (spec.head_dim, spec.head_dim), size)

    @property
    def plain(self) -> int:
        return self.heads * sum(self.widths) * self.size

    def codes(self, bits: int) -> int:
        return self.heads * sum(-(-width * bits // 8) for width in self.widths)

    @property
    def scales(self) -> int:
        groups = sum(width // group_size(width) for width in self.widths)
        return self.heads * groups * 2 * self.size


def _quantized(pieces: Sequence[int], pair: _Pair, bits: int) -> int:
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
    return code_slots * (pair.codes(bits) + pair.scales) + exact_slots * pair.plain


def _state(spec: DecoderSpec, element_bytes: int) -> int:
    facts = spec.linear
    assert facts is not None
    channels = 2 * facts.num_key_heads * facts.key_dim + facts.num_value_heads * facts.value_dim
    state = facts.num_value_heads * facts.key_dim * facts.value_dim
    # The recurrent matrices are float32 at least.
    return channels * (facts.conv_kernel - 1) * element_bytes + state * max(4, element_bytes)
