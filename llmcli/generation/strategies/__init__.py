"""Strategies own the loop from prompt ids to new tokens. One file each, one row in registry.py."""

from llmcli.generation.reads import STRATEGY_NAMES, StrategyName, reads
from llmcli.generation.strategies.base import Strategy, StrategyOptions
from llmcli.generation.strategies.registry import STRATEGIES, make_strategy

__all__ = [
    "STRATEGIES",
    "STRATEGY_NAMES",
    "Strategy",
    "StrategyName",
    "StrategyOptions",
    "make_strategy",
    "reads",
]
