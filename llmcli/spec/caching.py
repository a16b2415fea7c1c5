"""Kinds of caches, and the numbers of tokens in which they grow and pack. Stores are cache/'s."""

from __future__ import annotations

from typing import Literal

from llmcli.spec.decoder import DecoderSpec

CacheKind = Literal["growing", "ring", "static", "quantized-8", "quantized-4", "offloaded", "none"]

# Kinds that keep old keys less exactly than they came.
LOSSY: frozenset[CacheKind] = frozenset({"quantized-8", "quantized-4"})

# A step small enough to waste little, large enough that copying stays rare (as in mlx-lm).
GROWTH_STEP = 256
# Newest tokens kept exact, as KIVI's residual (arXiv 2402.02750); attention is mostly near.
RECENT = 128
# As wide as a scale and a minimum in the working dtype are worth; llama.cpp's blocks are 32 too.
GROUP = 32


def default_kind(spec: DecoderSpec) -> CacheKind:
    """`ring` where some layer has a window, else `growing`."""
    return "ring" if spec.windowed else "growing"


def group_size(width: int) -> int:
    """GROUP where it divides the width, else the whole width."""
    return GROUP if width % GROUP == 0 else width
