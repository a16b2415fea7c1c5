"""Facts of rotary position embeddings (RoFormer, arXiv 2104.09864) and their context scalings."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LinearScaling:
    """Position interpolation: every frequency divided by `factor` (arXiv 2306.15595)."""

    factor: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Llama3Scaling:
    """Llama 3.1's rule: long wavelengths divided by `factor`, short ones kept, a ramp between.

    The ramp lies between `original_max_positions / low_freq_factor` and
    `original_max_positions / high_freq_factor` tokens per turn.
    """

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_positions: int


RopeScaling = LinearScaling | Llama3Scaling | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rope:
    """One rotary table: `dim` of each head's entries turn, pair j by position * theta^(-2j/dim)."""

    theta: float
    dim: int
    scaling: RopeScaling = None
