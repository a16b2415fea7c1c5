"""The table of strategies: how each is made, and which settings it reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from llmcli.errors import UsageError
from llmcli.generation.params import SAMPLING_KEYS, SAMPLING_ONLY, SamplingParams
from llmcli.generation.strategies.base import Strategy, StrategyOptions
from llmcli.generation.strategies.beam import BeamSearch
from llmcli.generation.strategies.contrastive import Contrastive
from llmcli.generation.strategies.dola import DoLa
from llmcli.generation.strategies.sequential import Greedy, Sample
from llmcli.generation.strategies.speculative import DraftModel, PromptLookup, Speculative

StrategyName = Literal[
    "greedy", "sample", "beam", "contrastive", "dola", "prompt-lookup", "speculative"
]
STRATEGY_NAMES: tuple[StrategyName, ...] = get_args(StrategyName)

# Read by every strategy through its chain of processors.
_SHAPING = frozenset(SAMPLING_KEYS) - frozenset(SAMPLING_ONLY)
_DRAWING = frozenset(SAMPLING_ONLY)


@dataclass(frozen=True, slots=True)
class Row:
    """`options` are fields of StrategyOptions; `draws` says when sampling parameters are read.

    `blind_to` are sampling parameters that it does not read even then.
    """

    make: Callable[[SamplingParams, StrategyOptions], Strategy]
    options: frozenset[str]
    draws: Literal["always", "asked", "never"] = "never"
    blind_to: frozenset[str] = frozenset()


def _row(
    make: Callable[[SamplingParams, StrategyOptions], Strategy],
    options: str,
    *,
    draws: Literal["always", "asked", "never"] = "never",
    blind_to: str = "",
) -> Row:
    common = ["line_break_ids", "sampling"] if draws == "asked" else ["line_break_ids"]
    return Row(make, frozenset([*common, *options.split()]), draws, frozenset(blind_to.split()))


def _prompt_lookup(params: SamplingParams, options: StrategyOptions) -> Strategy:
    return Speculative(params, options, PromptLookup())


def _speculative(params: SamplingParams, options: StrategyOptions) -> Strategy:
    if options.draft is None:
        raise UsageError(
            "strategy speculative needs a draft model",
            hint="give --draft-model, or use --strategy prompt-lookup, which needs none",
        )
    return Speculative(params, options, DraftModel(options.draft))


_GUIDANCE = "top_logprobs explain guidance_scale negative_ids"
# Its bar would have to move with every guess, kept or not.
_NO_MIROSTAT = "mirostat_tau mirostat_eta"

STRATEGIES: Mapping[StrategyName, Row] = {
    "greedy": _row(Greedy, _GUIDANCE),
    "sample": _row(Sample, _GUIDANCE, draws="always"),
    "beam": _row(
        BeamSearch,
        "num_beams num_beam_groups diversity_penalty length_penalty early_stopping",
    ),
    "contrastive": _row(Contrastive, "top_logprobs explain penalty_alpha num_candidates"),
    "dola": _row(DoLa, "top_logprobs explain dola_layers", draws="asked"),
    "prompt-lookup": _row(
        _prompt_lookup,
        "top_logprobs explain num_draft_tokens",
        draws="asked",
        blind_to=_NO_MIROSTAT,
    ),
    "speculative": _row(
        _speculative,
        "top_logprobs explain num_draft_tokens draft",
        draws="asked",
        blind_to=_NO_MIROSTAT,
    ),
}


def make_strategy(
    name: StrategyName, params: SamplingParams, options: StrategyOptions | None = None
) -> Strategy:
    """The strategy of that name.

    Raises UsageError where the options lack what it needs.
    """
    return STRATEGIES[name].make(params, options or StrategyOptions())


def reads(name: StrategyName, *, sampling: bool = False) -> frozenset[str]:
    """The fields of SamplingParams and StrategyOptions that a strategy reads; it ignores the rest.

    `sampling` is whether tokens are drawn, for strategies that can be asked to.
    """
    row = STRATEGIES[name]
    drawing = row.draws == "always" or (row.draws == "asked" and sampling)
    return row.options | _SHAPING | (_DRAWING - row.blind_to if drawing else frozenset())
