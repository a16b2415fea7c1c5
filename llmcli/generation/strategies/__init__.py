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


def make_strategy(
    name: StrategyName, params: SamplingParams, options: StrategyOptions | None = None
) -> Strategy:
    """The strategy of that name."""
    return _MAKERS[name](params, options or StrategyOptions())


__all__ = [
    "STRATEGY_NAMES",
    "Strategy",
    "StrategyName",
    "StrategyOptions",
    "make_strategy",
]
