"""Strategies own the loop from prompt ids to new tokens. One file each, one row here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, get_args

from llmcli.generation.params import SamplingParams
from llmcli.generation.strategies.base import Strategy, StrategyOptions
from llmcli.generation.strategies.sequential import Greedy, Sample

StrategyName = Literal["greedy", "sample"]
STRATEGY_NAMES: tuple[str, ...] = get_args(StrategyName)

_MAKERS: Mapping[StrategyName, Callable[[SamplingParams, StrategyOptions], Strategy]] = {
    "greedy": Greedy,
    "sample": Sample,
}

# Read only where a token is drawn; every strategy reads the rest.
SAMPLING_ONLY = frozenset(
    """
    temperature top_k top_p min_p typical_p top_n_sigma epsilon_cutoff eta_cutoff
    xtc_probability xtc_threshold mirostat_tau mirostat_eta seed
    """.split()
)


def make_strategy(
    name: StrategyName, params: SamplingParams, options: StrategyOptions | None = None
) -> Strategy:
    """The strategy of that name."""
    return _MAKERS[name](params, options or StrategyOptions())


__all__ = [
    "SAMPLING_ONLY",
    "STRATEGY_NAMES",
    "Strategy",
    "StrategyName",
    "StrategyOptions",
    "make_strategy",
]
