"""Rotary scaling of a llama-architecture GGUF file, given back exactly or refused by name.

GGUF keeps Llama 3's scaling only as its result, one factor a frequency (`rope_freqs.weight`).
The published parameters are tried, and taken only when they reproduce every stored factor.
"""

from __future__ import annotations

import math
from typing import Any

from llmcli.acquire.gguf.reader import GgufFile

_FREQS = "rope_freqs.weight"
# low_freq_factor, high_freq_factor, original context of Llama 3.1, 3.2 and 3.3.
_PUBLISHED = ((1.0, 4.0, 8192),)
_ONLY = "only no scaling, linear scaling and Llama 3's published scaling can be imported"


def rope_scaling(file: GgufFile, *, head_dim: int, theta: float) -> dict[str, Any] | None:
    """The value of `rope_scaling` in config.json."""
    kind = file.text("llama.rope.scaling.type") or "none"
    factor = file.number("llama.rope.scaling.factor") or file.number("llama.rope.scale_linear")
    if _FREQS in file.tensors:
        return _llama3(file, head_dim, theta)
    if kind not in ("none", "linear"):
        raise file.fault(f"uses the rotary scaling {kind!r:.40}", _ONLY)
    if factor is None or factor in (0.0, 1.0):
        return None
    return {"rope_type": "linear", "factor": float(f"{factor:.7g}")}


def _llama3(file: GgufFile, head_dim: int, theta: float) -> dict[str, Any] | None:
    from llmcli.acquire.gguf.tensors import read_rows

    stored = [float(value) for value in read_rows(file, file.tensors[_FREQS]).reshape(-1)]
    if len(stored) != head_dim // 2:
        raise file.fault(f"{_FREQS} holds {len(stored)} factors for {head_dim // 2} frequencies")
    factor = float(f"{max(stored):.6g}")
    if all(value == 1.0 for value in stored):
        return None
    for low, high, original in _PUBLISHED:
        wanted = llama3_factors(
            head_dim, theta, factor=factor, low=low, high=high, original=original
        )
        if all(math.isclose(a, b, rel_tol=1e-5) for a, b in zip(stored, wanted, strict=True)):
            return {
                "rope_type": "llama3",
                "factor": factor,
                "low_freq_factor": low,
                "high_freq_factor": high,
                "original_max_position_embeddings": original,
            }
    raise file.fault(f"{_FREQS} fits no published rotary scaling", _ONLY)


def llama3_factors(
    head_dim: int, theta: float, *, factor: float, low: float, high: float, original: int
) -> list[float]:
    """By what each frequency is divided: 1 for short waves, `factor` for long, blended between."""
    factors = []
    for i in range(0, head_dim, 2):
        wave = 2 * math.pi * theta ** (i / head_dim)
        if wave < original / high:
            factors.append(1.0)
        elif wave > original / low:
            factors.append(factor)
        else:
            smooth = (original / wave - low) / (high - low)
            factors.append(1 / ((1 - smooth) / factor + smooth))
    return factors
