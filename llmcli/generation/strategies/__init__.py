"""Strategies own the loop from prompt ids to new tokens. One file each, one row in registry.py."""

from llmcli.generation.strategies.base import Strategy, StrategyOptions
from llmcli.generation.strategies.registry import (
    STRATEGIES,
    STRATEGY_NAMES,
    StrategyName,
    make_strategy,
    reads,
)

__all__ = [
    "STRATEGIES",
    "STRATEGY_NAMES",
    "Strategy",
    "StrategyName",
    "StrategyOptions",
    "make_strategy",
    "reads",
]
