"""The one place that turns a cache kind's name into a cache."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from llmcli.cache.base import KVCache, LayerStore
from llmcli.cache.full import FullStore
from llmcli.cache.offloaded import OffloadedStore
from llmcli.cache.quantized import QuantizedStore
from llmcli.cache.ring import RingStore
from llmcli.cache.state import StateStore
from llmcli.spec import GROWTH_STEP, CacheKind, DecoderSpec, LayerSpec


def make_cache(kind: CacheKind, spec: DecoderSpec, *, planned: int = 0) -> KVCache | None:
    """An empty cache for a decoder of this spec; None for kind `none`.

    `growing` keeps every key of every layer. In all other kinds a windowed layer has a ring that
    ends at its window, and the kind says what the rest does: `ring` grows, `static` takes the
    memory for `planned` tokens at once, `quantized-N` packs old tokens, `offloaded` lies in host
    memory.
    """
    if kind == "none":
        return None
    return KVCache([_store(kind, layer, planned or GROWTH_STEP) for layer in spec.layers])


def _store(kind: CacheKind, layer: LayerSpec, planned: int) -> LayerStore:
    if layer.mixer == "gated_delta":
        return StateStore()
    if layer.window is not None:
        if kind == "growing":
            return FullStore(window=layer.window)
        step = planned if kind == "static" else GROWTH_STEP
        return RingStore(layer.window, step=step)
    return FullStore(step=planned) if kind == "static" else _FULL[kind]()


_FULL: Mapping[CacheKind, Callable[[], LayerStore]] = {
    "growing": FullStore,
    "ring": FullStore,
    "quantized-8": partial(QuantizedStore, 8),
    "quantized-4": partial(QuantizedStore, 4),
    "offloaded": OffloadedStore,
}
