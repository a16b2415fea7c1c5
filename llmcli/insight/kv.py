"""The cache view: what keys and values cost, and what other designs of the same size would.

The sizes are those of cache/, which a test compares.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from llmcli.insight.facts import Facts
from llmcli.insight.ranges import alike, written
from llmcli.plurals import counted
from llmcli.spec import (
    GROWTH_STEP,
    CacheKind,
    DecoderSpec,
    LayerSpec,
    kv_bytes_per_layer,
    kv_bytes_per_token,
    state_bytes,
)
from llmcli.spec import cache_size as sizes

# How a prompt goes through generation/stepper.py; tested.
PREFILL_CHUNK = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerCache:
    """Layers of one kind. `holds` is the most tokens that a layer keeps (None: all).

    `bytes_per_token` is what one more token adds in one layer; `state_bytes` what a layer keeps
    whatever the length. At each context: tokens that one layer has room for, and bytes of all.
    """

    layers: str
    number: int
    kind: str
    holds: int | None
    bytes_per_token: int
    state_bytes: int
    capacity: tuple[int, ...]
    bytes: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """A way of sharing keys and values, and its bytes at each context, for all layers."""

    name: str
    bytes_per_token: int
    bytes: tuple[int, ...]
    this: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheSizes:
    """`bytes_per_element` is 2 for 16-bit keys and values.

    Without a `kind`, bytes are of exactly the tokens, and `allocated` is what the cache takes as
    it grows in steps. With one, all bytes are what a cache of that kind takes; `exact_per_token`
    is what a token takes that it has not packed yet, and of a kind that packs, `capacity` is empty.
    """

    name: str
    bytes_per_element: int
    context: int
    contexts: tuple[int, ...]
    layers: tuple[LayerCache, ...]
    bytes_per_token: int
    exact_per_token: int
    total: tuple[int, ...]
    allocated: tuple[int, ...]
    designs: tuple[Design, ...]
    kind: str | None


def default_contexts(spec: DecoderSpec) -> tuple[int, ...]:
    """A short text, a long one and the longest."""
    return tuple(sorted({min(n, spec.context) for n in (1024, 8192, spec.context)}))


def cache_sizes(
    facts: Facts, *, contexts: Sequence[int], element: int, kind: CacheKind | None = None
) -> CacheSizes:
    """`contexts` are lengths in tokens, `element` the bytes of one number."""
    spec = facts.spec
    groups = alike((one.mixer, one.window) for one in spec.layers)
    size = _Size(contexts, element, kind)
    layers = tuple(
        _layer_cache(spec, spec.layers[indices[0]], indices, size) for indices in groups.values()
    )
    total = size.total(spec)
    return CacheSizes(
        name=facts.name,
        bytes_per_element=element,
        context=spec.context,
        contexts=tuple(contexts),
        layers=layers,
        bytes_per_token=sum(one.bytes_per_token * one.number for one in layers),
        exact_per_token=kv_bytes_per_token(spec, element),
        total=total,
        allocated=total
        if kind is not None
        else tuple(
            sum(layer_bytes(spec, one, _room(one, length), element) for one in spec.layers)
            for length in contexts
        ),
        designs=tuple(_designs(spec, size)),
        kind=kind,
    )


@dataclass(frozen=True, slots=True)
class _Size:
    """Bytes at each context: of exactly the tokens, or of a cache of one kind."""

    contexts: Sequence[int]
    element: int
    kind: CacheKind | None

    def total(self, spec: DecoderSpec) -> tuple[int, ...]:
        kind = self.kind
        if kind is None:
            return tuple(cache_bytes(spec, length, self.element) for length in self.contexts)
        return tuple(kind_bytes(spec, kind, length, self.element) for length in self.contexts)

    def token(self, spec: DecoderSpec, layer: LayerSpec) -> int:
        """What one more token adds in this layer in the end."""
        if layer.mixer == "gated_delta":
            return 0
        if layer.window is None and (self.kind == "quantized-8" or self.kind == "quantized-4"):
            return sizes.packed_token_bytes(spec, self.kind, self.element)
        return kv_bytes_per_layer(spec, self.element)

    def tokens(self, spec: DecoderSpec) -> int:
        """The same for all layers."""
        return sum(self.token(spec, layer) for layer in spec.layers)

    @property
    def packs(self) -> bool:
        return self.kind is not None and self.kind.startswith("quantized")


def kind_bytes(spec: DecoderSpec, kind: CacheKind, length: int, element: int) -> int:
    """What a cache of this kind takes for a prompt of `length` tokens."""
    whole, rest = divmod(length, PREFILL_CHUNK)
    pieces = [PREFILL_CHUNK] * whole + [rest] * (rest > 0)
    return sizes.cache_bytes(kind, spec, pieces, element_bytes=element, planned=length)


def cache_bytes(spec: DecoderSpec, length: int, element: int) -> int:
    """Bytes of the keys, values and states that `length` tokens leave behind."""
    return sum(layer_bytes(spec, layer, length, element) for layer in spec.layers)


def layer_bytes(spec: DecoderSpec, layer: LayerSpec, length: int, element: int) -> int:
    """The same for one layer; a windowed one keeps no more than its window."""
    if layer.mixer == "gated_delta":
        return state_bytes(spec, element) if length else 0
    held = length if layer.window is None else min(length, layer.window)
    return held * kv_bytes_per_layer(spec, element)


def _room(layer: LayerSpec, length: int) -> int:
    """Tokens that a store of this layer has room for once it holds `length`."""
    room = -(-length // GROWTH_STEP) * GROWTH_STEP
    return room if layer.window is None else min(room, layer.window)


def _layer_cache(
    spec: DecoderSpec,
    layer: LayerSpec,
    indices: tuple[int, ...],
    size: _Size,
) -> LayerCache:
    state, element = layer.mixer == "gated_delta", size.element
    # A cache that only grows does not let go of what a window has passed.
    if size.kind == "growing":
        layer = replace(layer, window=None)
    kind = "state" if state else "all keys" if layer.window is None else "window"
    plain = kv_bytes_per_layer(spec, element)
    alone = size.total(replace(spec, layers=(layer,)))
    capacity: tuple[int, ...] = ()
    if not size.packs:
        rooms = (_room(layer, length) for length in size.contexts)
        taken = rooms if size.kind is None else (one // plain for one in alone)
        capacity = tuple(0 if state else one for one in taken)
    return LayerCache(
        layers=written(indices),
        number=len(indices),
        kind=kind,
        holds=0 if state else layer.window,
        bytes_per_token=size.token(spec, layer),
        state_bytes=state_bytes(spec, element) if state else 0,
        capacity=capacity,
        bytes=tuple(len(indices) * one for one in alone),
    )


def _designs(spec: DecoderSpec, size: _Size) -> list[Design]:
    """This decoder beside the same one with other sharing, and without its windows."""
    bare = replace(spec, layers=tuple(replace(one, window=None) for one in spec.layers))
    found = [_design("this decoder", spec, size, this=True)]
    if spec.windowed and size.kind != "growing":
        found.append(_design("the same without its windows", bare, size))
    if spec.latent is not None:
        if size.kind is not None:
            return found
        width = (spec.latent.kv_rank + spec.latent.rope_dim) * size.element
        number = sum(one.mixer == "attention" for one in spec.layers)
        found.append(
            Design(
                name="the latents alone (MLA as published)",
                bytes_per_token=number * width,
                bytes=tuple(number * width * length for length in size.contexts),
            )
        )
        return found
    for name, heads in (
        (
            f"MHA, {counted(spec.num_heads, 'head')} of keys and values",
            spec.num_heads,
        ),
        (f"GQA, {spec.num_kv_heads} heads", spec.num_kv_heads),
        ("MQA, one head", 1),
    ):
        if name.startswith("GQA") and heads in (1, spec.num_heads):
            continue
        other = replace(bare, num_kv_heads=heads)
        found.append(_design(f"{name}, no window", other, size))
    return found


def _design(name: str, spec: DecoderSpec, size: _Size, *, this: bool = False) -> Design:
    return Design(
        name=name,
        bytes_per_token=size.tokens(spec),
        bytes=size.total(spec),
        this=this,
    )
