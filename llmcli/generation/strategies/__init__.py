"""Strategies own the loop from prompt ids to new tokens. One file each, one row here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, get_args

from llmcli.generation.params import SamplingParams
from llmcli.generation.strategies.base import Strategy
from llmcli.generation.strategies.sequential import Greedy, Sample

StrategyName = Literal["greedy", "sample"]
STRATEGY_NAMES: tuple[str, ...] = get_args(StrategyName)

_MAKERS: Mapping[StrategyName, Callable[[SamplingParams, int], Strategy]] = {
    "greedy": Greedy,
    "sample": Sample,
}

# The sampling parameters that each strategy reads; any other that is asked for is refused.
READS: Mapping[StrategyName, frozenset[str]] = {
    "greedy": frozenset({"repetition_penalty"}),
    "sample": frozenset({"temperature", "top_k", "top_p", "min_p", "repetition_penalty", "seed"}),
}


def make_strategy(name: StrategyName, params: SamplingParams, *, top_logprobs: int = 0) -> Strategy:
    """The strategy of that name; `top_logprobs` candidates are reported with each token."""
    return _MAKERS[name](params, top_logprobs)


__all__ = ["READS", "STRATEGY_NAMES", "Strategy", "StrategyName", "make_strategy"]
