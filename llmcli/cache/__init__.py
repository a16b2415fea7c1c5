"""KV storage: what earlier tokens left behind, so that a step computes only the new ones.

Must not know the decoder (model/), families or strategies; a cache is passed into the forward.
"""

from llmcli.cache.base import KVCache, LayerStore
from llmcli.cache.full import FullStore
from llmcli.cache.make import CacheKind, default_kind, make_cache
from llmcli.cache.ring import RingStore
from llmcli.cache.state import StateStore

__all__ = [
    "CacheKind",
    "FullStore",
    "KVCache",
    "LayerStore",
    "RingStore",
    "StateStore",
    "default_kind",
    "make_cache",
]
