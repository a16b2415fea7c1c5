"""Facts of rotary position embeddings (RoFormer, arXiv 2104.09864) and their context scalings."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LinearScaling:
    """Position interpolation: every frequency divided by `factor` (arXiv 2306.15595)."""

    factor: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamicScaling:
    """Dynamic NTK: a larger base once the length passes `original_max_positions`.

    The base is fixed for a whole run by the length that the run may reach, so that a cached key
    and a recomputed one agree.
    """

    factor: float
    original_max_positions: int


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


@dataclass(frozen=True, slots=True, kw_only=True)
class YarnScaling:
    """YaRN (arXiv 2309.00071): a ramp between kept and divided frequencies.

    The ramp is given in turns over the original context; `attention_factor` multiplies cos and
    sin; `truncate` rounds the ramp's ends to whole pairs.
    """

    factor: float
    original_max_positions: int
    attention_factor: float
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class LongRopeScaling:
    """LongRoPE (arXiv 2402.13753): one divisor a pair, of two lists.

    `short` is used up to and including `original_max_positions` tokens, `long` beyond.
    """

    short: tuple[float, ...]
    long: tuple[float, ...]
    original_max_positions: int
    attention_factor: float


RopeScaling = LinearScaling | DynamicScaling | Llama3Scaling | YarnScaling | LongRopeScaling | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rope:
    """One rotary table: `dim` of each head's entries turn, pair j by position * theta^(-2j/dim).

    A pair is (x[j], x[j + dim/2]), or (x[2j], x[2j + 1]) where `interleaved`.
    """

    theta: float
    dim: int
    interleaved: bool = False
    scaling: RopeScaling = None

    @property
    def by_length(self) -> bool:
        """Whether the table depends on the length of the text."""
        return isinstance(self.scaling, DynamicScaling | LongRopeScaling)

    def regime(self, length: int, planned: int) -> int:
        """A number that changes exactly when the table does.

        `length` counts the tokens so far, `planned` those that the run may reach. For most
        scalings it is always 0; keys cached under another regime are of no use.
        """
        match self.scaling:
            case DynamicScaling(original_max_positions=limit):
                reach = max(length, planned)
                return reach if reach > limit else 0
            case LongRopeScaling(original_max_positions=limit):
                return int(length > limit)
        return 0
