"""KV storage: what earlier tokens left behind, so that a step computes only the new ones.

Must not know the decoder (model/), families or strategies; a cache is passed into the forward.
"""

from llmcli.cache.base import KVCache
from llmcli.cache.growing import GrowingCache
from llmcli.cache.make import CacheKind, make_cache

__all__ = ["CacheKind", "GrowingCache", "KVCache", "make_cache"]
