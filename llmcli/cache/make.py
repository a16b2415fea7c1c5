"""The one place that turns a cache kind's name into a cache."""

from __future__ import annotations

from typing import Literal

from llmcli.cache.base import KVCache
from llmcli.cache.growing import GrowingCache
from llmcli.spec import DecoderSpec

CacheKind = Literal["growing", "none"]


def make_cache(kind: CacheKind, spec: DecoderSpec) -> KVCache | None:
    """An empty cache for a decoder of this spec; None for kind `none`."""
    return None if kind == "none" else GrowingCache(spec.num_layers)
