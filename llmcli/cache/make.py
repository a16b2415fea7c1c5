"""The one place that turns a cache kind's name into a cache."""

from __future__ import annotations

from typing import Literal

from llmcli.cache.base import KVCache, LayerStore
from llmcli.cache.full import FullStore
from llmcli.cache.ring import RingStore
from llmcli.cache.state import StateStore
from llmcli.spec import DecoderSpec, LayerSpec

# growing keeps every key; ring bounds windowed layers by their window, the others grow.
CacheKind = Literal["growing", "ring", "none"]


def default_kind(spec: DecoderSpec) -> CacheKind:
    """`ring` where some layer has a window, else `growing`."""
    return "ring" if spec.windowed else "growing"


def make_cache(kind: CacheKind, spec: DecoderSpec) -> KVCache | None:
    """An empty cache for a decoder of this spec; None for kind `none`."""
    if kind == "none":
        return None
    return KVCache([_store(layer, ring=kind == "ring") for layer in spec.layers])


def _store(layer: LayerSpec, *, ring: bool) -> LayerStore:
    if layer.mixer == "gated_delta":
        return StateStore()
    if ring and layer.window is not None:
        return RingStore(layer.window)
    return FullStore(window=layer.window)
