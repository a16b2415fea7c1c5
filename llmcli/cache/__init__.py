"""KV storage: what earlier tokens left behind, so that a step computes only the new ones.

Must not know the decoder (model/), families or strategies; a cache is passed into the forward.
"""

from llmcli.cache.base import KVCache, LayerStore, Slot, Turn
from llmcli.cache.fixed import Fixed
from llmcli.cache.full import FullStore
from llmcli.cache.make import make_cache
from llmcli.cache.offloaded import OffloadedStore
from llmcli.cache.quantized import QuantizedStore
from llmcli.cache.ring import RingStore
from llmcli.cache.state import StateStore
from llmcli.spec import LOSSY, CacheKind, default_kind

__all__ = [
    "LOSSY",
    "CacheKind",
    "Fixed",
    "FullStore",
    "KVCache",
    "LayerStore",
    "OffloadedStore",
    "QuantizedStore",
    "RingStore",
    "Slot",
    "StateStore",
    "Turn",
    "default_kind",
    "make_cache",
]
