"""Rotary settings out of a config, in both dialects that checkpoints use.

Hub style: `rope_theta` and `rope_scaling` on top. Newer: both inside `rope_parameters`.
Where the two differ the nested value wins, as in transformers, and a warning says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from llmcli.checkpoint.config import ConfigReader
from llmcli.errors import CheckpointError
from llmcli.spec import LinearScaling, Llama3Scaling, Rope, RopeScaling


def read_rope(
    reader: ConfigReader, *, dim: int, max_positions: int, default_theta: float = 10000.0
) -> Rope:
    """The one rotary table of a config whose layers all turn alike.

    `default_theta` is the model type's own, used where neither dialect names one.
    """
    nested = reader.section("rope_parameters")
    scaling_section = nested or reader.section("rope_scaling")
    if nested and reader.raw("rope_scaling") not in (None, {}):
        reader.warnings.append(
            f"{reader.origin} has both rope_parameters and rope_scaling; the former is used"
        )
    top_theta = reader.number("rope_theta", default_theta)
    theta = scaling_section.number("rope_theta", top_theta) if scaling_section else top_theta
    if theta != top_theta and reader.has("rope_theta"):
        reader.warnings.append(
            f"{reader.origin} sets rope_theta to {top_theta:g} on top and to {theta:g} inside; "
            f"{theta:g} is used"
        )
    if theta <= 0:
        raise CheckpointError(f"{reader.origin} sets rope_theta to {theta:g}, not above 0")
    scaling = _scaling(scaling_section, max_positions) if scaling_section else None
    if scaling_section:
        reader.absorb(scaling_section)
    return Rope(theta=theta, dim=dim, scaling=scaling)


def _scaling(section: ConfigReader, max_positions: int) -> RopeScaling:
    # `type` is the older spelling; some files hold both.
    key = "rope_type" if section.has("rope_type") else "type"
    section.ignore(["type"])
    return section.choice(key, _KINDS, "default")(section, max_positions)


def _none(_section: ConfigReader, _max_positions: int) -> RopeScaling:
    return None


def _linear(section: ConfigReader, _max_positions: int) -> RopeScaling:
    return LinearScaling(_factor(section))


def _llama3(section: ConfigReader, max_positions: int) -> RopeScaling:
    low, high = section.number("low_freq_factor"), section.number("high_freq_factor")
    if not 0 < low < high:
        raise CheckpointError(
            f"{section.origin} sets low_freq_factor to {low:g} and high_freq_factor to {high:g}; "
            "the former must be the smaller, and both above 0"
        )
    original = section.integer("original_max_position_embeddings", max_positions)
    if original < 1:
        raise CheckpointError(
            f"{section.origin} sets original_max_position_embeddings to {original}, below 1"
        )
    return Llama3Scaling(
        factor=_factor(section),
        low_freq_factor=low,
        high_freq_factor=high,
        original_max_positions=original,
    )


def _factor(section: ConfigReader) -> float:
    factor = section.number("factor")
    if factor < 1:
        raise CheckpointError(f"{section.origin} sets factor to {factor:g}, below 1")
    return factor


_KINDS: Mapping[str, Callable[[ConfigReader, int], RopeScaling]] = {
    "default": _none,
    "linear": _linear,
    "llama3": _llama3,
}
