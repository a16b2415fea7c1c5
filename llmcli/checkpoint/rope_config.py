"""Rotary settings out of a config, in both dialects that checkpoints use.

Hub style: `rope_theta` and `rope_scaling` on top. Newer: both inside `rope_parameters`.
Where the two differ the nested value wins, as in transformers, and a warning says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from llmcli.checkpoint.config import ConfigReader
from llmcli.errors import CheckpointError, UnsupportedError
from llmcli.spec import (
    DynamicScaling,
    LinearScaling,
    Llama3Scaling,
    LongRopeScaling,
    Rope,
    RopeScaling,
    YarnScaling,
)


@dataclass(frozen=True, slots=True)
class _Facts:
    """What a scaling's rule may need besides its own section."""

    section: ConfigReader
    dim: int
    max_positions: int
    # Some files state the trained length beside the section; some model types have a default.
    original: int | None
    default_original: int | None


def read_rope(
    reader: ConfigReader,
    *,
    dim: int,
    max_positions: int,
    default_theta: float = 10000.0,
    default_partial: float = 1.0,
    default_original: int | None = None,
    theta_key: str = "rope_theta",
    interleaved: bool = False,
    layer_type: str | None = None,
    scaled: bool = True,
    kinds: Mapping[str, str] = MappingProxyType({}),
) -> Rope:
    """The rotary table of a config, or of one layer type where `rope_parameters` has several.

    `dim` is the size of a head, of which a `partial_rotary_factor` (or the older `rotary_pct`)
    takes a part. The defaults are the model type's own, `theta_key` is where its files keep the
    base on top, `scaled` whether `rope_scaling` is for these layers, and `kinds` gives the names
    of scalings that mean another one in its files.
    """
    nested = _nested(reader, layer_type)
    top = reader.section("rope_scaling")
    if nested and top and reader.raw("rope_scaling"):
        reader.warnings.append(
            f"{reader.origin} has both rope_parameters and rope_scaling; the former is used"
        )
    section = nested or (top if scaled else None)
    theta = _pick(reader, section, (theta_key, "rotary_emb_base"), default_theta)
    if theta <= 0:
        raise CheckpointError(f"{reader.origin} sets rope_theta to {theta:g}, not above 0")
    part = _pick(reader, section, ("partial_rotary_factor", "rotary_pct"), default_partial)
    if not 0 < part <= 1:
        raise CheckpointError(
            f"{reader.origin} turns {part:g} of each head; it must be above 0 and at most 1"
        )
    rope = Rope(theta=theta, dim=int(dim * part), interleaved=interleaved)
    original = reader.raw("original_max_position_embeddings")
    if original is not None:
        original = reader.integer("original_max_position_embeddings")
    if section is None:
        return rope
    scaling = _scaling(_Facts(section, rope.dim, max_positions, original, default_original), kinds)
    reader.absorb(section)
    return replace(rope, scaling=scaling)


def _nested(reader: ConfigReader, layer_type: str | None) -> ConfigReader | None:
    """`rope_parameters`, or what it holds for one type of layer."""
    nested = reader.section("rope_parameters")
    if nested is None:
        return None
    if layer_type is not None:
        return nested.section(layer_type)
    if named := [name for name in ("full_attention", "sliding_attention") if nested.has(name)]:
        raise UnsupportedError(
            f"{nested.origin} has settings of their own for {' and '.join(named)}, "
            "which this model type does not have",
            hint="running it anyway would give wrong text, so it is refused",
        )
    return nested


def _pick(
    reader: ConfigReader, section: ConfigReader | None, keys: tuple[str, str], default: float
) -> float:
    """The value inside the section, else the one on top under its newer or older name."""
    newer, older = keys
    inner = "rope_theta" if older == "rotary_emb_base" else newer
    top = reader.number(newer, reader.number(older, default))
    if section is None:
        return top
    value = section.number(inner, top)
    if value != top and (reader.has(newer) or reader.has(older)):
        reader.warnings.append(
            f"{reader.origin} sets {newer} to {top:g} on top and to {value:g} inside; "
            f"{value:g} is used"
        )
    return value


def _scaling(facts: _Facts, kinds: Mapping[str, str]) -> RopeScaling:
    # `type` is the older spelling; some files hold both.
    key = "rope_type" if facts.section.has("rope_type") else "type"
    facts.section.ignore(["type"])
    meant = {**_KINDS, **{name: _KINDS[other] for name, other in kinds.items()}}
    return facts.section.choice(key, meant, "default")(facts)


def _none(facts: _Facts) -> RopeScaling:
    # Files of one layer type among several, and old ones, may name lengths that nothing uses.
    facts.section.ignore(["original_max_position_embeddings", "factor"])
    return None


def _linear(facts: _Facts) -> RopeScaling:
    facts.section.ignore(["original_max_position_embeddings"])
    return LinearScaling(_factor(facts.section))


def _dynamic(facts: _Facts) -> RopeScaling:
    # transformers stretches from max_position_embeddings, whatever the section says.
    facts.section.ignore(["original_max_position_embeddings"])
    return DynamicScaling(factor=_factor(facts.section), original_max_positions=facts.max_positions)


def _llama3(facts: _Facts) -> RopeScaling:
    section = facts.section
    low, high = section.number("low_freq_factor"), section.number("high_freq_factor")
    if not 0 < low < high:
        raise CheckpointError(
            f"{section.origin} sets low_freq_factor to {low:g} and high_freq_factor to {high:g}; "
            "the former must be the smaller, and both above 0"
        )
    return Llama3Scaling(
        factor=_factor(section),
        low_freq_factor=low,
        high_freq_factor=high,
        original_max_positions=_original(facts),
    )


def _yarn(facts: _Facts) -> RopeScaling:
    section, original = facts.section, _original(facts)
    factor = section.number("factor", facts.max_positions / original)
    if factor < 1:
        raise CheckpointError(f"{section.origin} sets factor to {factor:g}, below 1")
    mscale = section.number("mscale", 0.0)
    all_dim = section.number("mscale_all_dim", 0.0)
    # arXiv 2309.00071, equation 22; DeepSeek's files weigh it by the ratio of two numbers.
    default = _mscale(factor, mscale) / _mscale(factor, all_dim) if mscale and all_dim else None
    return YarnScaling(
        factor=factor,
        original_max_positions=original,
        attention_factor=section.number("attention_factor", default or _mscale(factor, 1.0)),
        beta_fast=section.number("beta_fast", 32.0) or 32.0,
        beta_slow=section.number("beta_slow", 1.0) or 1.0,
        truncate=section.flag("truncate", True),
    )


def _longrope(facts: _Facts) -> RopeScaling:
    section, original = facts.section, _original(facts)
    factor = section.number("factor", facts.max_positions / original)
    # arXiv 2402.13753: the attention's temperature follows the stretch of the context.
    default = math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 else 1.0
    return LongRopeScaling(
        short=_divisors(facts, "short_factor"),
        long=_divisors(facts, "long_factor"),
        original_max_positions=original,
        attention_factor=section.number("attention_factor", default),
    )


def _divisors(facts: _Facts, key: str) -> tuple[float, ...]:
    values: Any = facts.section.raw(key)
    wanted = facts.dim // 2
    numbers = isinstance(values, list) and all(
        isinstance(value, int | float) and not isinstance(value, bool) and value > 0
        for value in values
    )
    if not numbers or len(values) != wanted:
        found = len(values) if isinstance(values, list) else type(values).__name__
        raise CheckpointError(
            f"{facts.section.origin}: {key} must be a list of {wanted} numbers above 0, "
            f"one a rotary pair; it is {found}",
            hint="correct the config, or fetch it again",
        )
    return tuple(float(value) for value in values)


def _original(facts: _Facts) -> int:
    """The trained length: the one on top wins, as in transformers."""
    key = "original_max_position_embeddings"
    inside = facts.section.integer(key, facts.default_original or facts.max_positions)
    original = inside if facts.original is None else facts.original
    if facts.section.has(key) and inside != original:
        facts.section.warnings.append(
            f"{facts.section.origin} sets {key} to {inside}, but {original} stands on top, "
            f"which is used"
        )
    if original < 2:
        raise CheckpointError(f"{facts.section.origin} sets {key} to {original}, below 2")
    return original


def _factor(section: ConfigReader) -> float:
    factor = section.number("factor")
    if factor < 1:
        raise CheckpointError(f"{section.origin} sets factor to {factor:g}, below 1")
    return factor


def _mscale(factor: float, weight: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0


_KINDS: Mapping[str, Callable[[_Facts], RopeScaling]] = {
    "default": _none,
    "linear": _linear,
    "dynamic": _dynamic,
    "llama3": _llama3,
    "yarn": _yarn,
    "longrope": _longrope,
    "su": _longrope,
}
