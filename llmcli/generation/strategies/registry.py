"""The table of strategies: how each is made. What each reads stands in generation/reads.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from llmcli.errors import UsageError
from llmcli.generation.params import SamplingParams
from llmcli.generation.reads import StrategyName
from llmcli.generation.strategies.base import Strategy, StrategyOptions
from llmcli.generation.strategies.beam import BeamSearch
from llmcli.generation.strategies.contrastive import Contrastive
from llmcli.generation.strategies.dola import DoLa
from llmcli.generation.strategies.proposers import DraftModel, PromptLookup
from llmcli.generation.strategies.sequential import Greedy, Sample
from llmcli.generation.strategies.speculative import Speculative


def _prompt_lookup(params: SamplingParams, options: StrategyOptions) -> Strategy:
    return Speculative(params, options, PromptLookup())


def _speculative(params: SamplingParams, options: StrategyOptions) -> Strategy:
    if options.draft is None:
        raise UsageError(
            "strategy speculative needs a draft model",
            hint="use --strategy prompt-lookup, which needs none",
        )
    return Speculative(params, options, DraftModel(options.draft))


STRATEGIES: Mapping[StrategyName, Callable[[SamplingParams, StrategyOptions], Strategy]] = {
    "greedy": Greedy,
    "sample": Sample,
    "beam": BeamSearch,
    "contrastive": Contrastive,
    "dola": DoLa,
    "prompt-lookup": _prompt_lookup,
    "speculative": _speculative,
}


def make_strategy(
    name: StrategyName, params: SamplingParams, options: StrategyOptions | None = None
) -> Strategy:
    """The strategy of that name.

    Raises UsageError where the options lack what it needs.
    """
    return STRATEGIES[name](params, options or StrategyOptions())
