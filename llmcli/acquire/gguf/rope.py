"""Rotary scaling of a GGUF file, given back exactly or refused by name.

GGUF keeps Llama 3's scaling only as its result, one factor a frequency (`rope_freqs.weight`).
The published parameters are tried, and taken only when they reproduce every stored factor.
Must not know architectures beyond the kinds of scaling that each allows.
"""

from __future__ import annotations

import math
from typing import Any, Literal

from llmcli.acquire.gguf.keys import Keys
from llmcli.acquire.gguf.reader import GgufFile
from llmcli.checkpoint.escape import printable

Kind = Literal["linear", "llama3", "yarn"]

_FREQS = "rope_freqs.weight"
# low_freq_factor, high_freq_factor, original context of Llama 3.1, 3.2 and 3.3.
_PUBLISHED = ((1.0, 4.0, 8192),)
_WORDS: dict[Kind, str] = {
    "linear": "linear scaling",
    "llama3": "Llama 3's published scaling",
    "yarn": "YaRN",
}


def rope_scaling(
    file: GgufFile, keys: Keys, kinds: tuple[Kind, ...], *, head_dim: int, theta: float
) -> dict[str, Any] | None:
    """The value of `rope_scaling` in config.json, where the architecture allows `kinds`."""
    kind = keys.text("rope.scaling.type") or "none"
    factor = keys.number("rope.scaling.factor", 0.0) or keys.number("rope.scale_linear", 0.0)
    # Where the scaling began, and whether the model was trained with it, change no number here.
    keys.get("rope.scaling.finetuned")
    keys.get("rope.scaling.original_context_length")
    _refuse_unless(file, keys, "attn_factor", 1.0)
    only = f"only no scaling, {' and '.join(_WORDS[kind] for kind in kinds)} can be imported"
    if "llama3" in kinds and _FREQS in file.tensors:
        return _llama3(file, head_dim, theta, only)
    if kind != "none" and kind not in kinds:
        raise file.fault(f"uses the rotary scaling '{printable(kind, 40)}'", only)
    if kind == "yarn":
        return _yarn(file, keys, factor)
    if factor in (0.0, 1.0):
        return None
    return {"rope_type": "linear", "factor": factor}


def _yarn(file: GgufFile, keys: Keys, factor: float) -> dict[str, Any]:
    # What remains is the paper's rule, in which both sides agree.
    _refuse_unless(file, keys, "yarn_ext_factor", 1.0)
    _refuse_unless(file, keys, "yarn_attn_factor", 1.0)
    _refuse_unless(file, keys, "yarn_log_multiplier", 0.0)
    if factor < 1.0:
        raise file.fault(f"{keys.full('rope.scaling.factor')} is {factor:g}, below 1")
    return {
        "rope_type": "yarn",
        "factor": factor,
        "original_max_position_embeddings": keys.size("rope.scaling.original_context_length"),
        "beta_fast": keys.number("rope.scaling.yarn_beta_fast", 32.0),
        "beta_slow": keys.number("rope.scaling.yarn_beta_slow", 1.0),
    }


def _refuse_unless(file: GgufFile, keys: Keys, name: str, neutral: float) -> None:
    value = keys.number(f"rope.scaling.{name}", neutral)
    if value != neutral:
        raise file.fault(
            f"{keys.full(f'rope.scaling.{name}')} is {value:g}, not {neutral:g}",
            "config.json of this architecture has no word for it; it cannot be imported",
        )


def _llama3(file: GgufFile, head_dim: int, theta: float, only: str) -> dict[str, Any] | None:
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
    raise file.fault(f"{_FREQS} fits no published rotary scaling", only)


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
