"""The names of the strategies, and which settings each reads. Must not import torch.

A setting that is asked for and not read is refused, so this table is checked against what each
strategy really reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from llmcli.generation.params import SAMPLING_KEYS, SAMPLING_ONLY

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

    options: frozenset[str]
    draws: Literal["always", "asked", "never"] = "never"
    blind_to: frozenset[str] = frozenset()


def _row(
    options: str, *, draws: Literal["always", "asked", "never"] = "never", blind_to: str = ""
) -> Row:
    common = ["line_break_ids", "sampling"] if draws == "asked" else ["line_break_ids"]
    return Row(frozenset([*common, *options.split()]), draws, frozenset(blind_to.split()))


_GUIDANCE = "top_logprobs explain constraint guidance_scale negative_ids"
# Its bar would have to move with every guess, kept or not.
_NO_MIROSTAT = "mirostat_tau mirostat_eta"

READS: Mapping[StrategyName, Row] = {
    "greedy": _row(_GUIDANCE),
    "sample": _row(_GUIDANCE, draws="always"),
    "beam": _row(
        "explain constraint num_beams num_beam_groups diversity_penalty length_penalty "
        "early_stopping num_return on_step"
    ),
    "contrastive": _row("top_logprobs explain constraint penalty_alpha num_candidates"),
    # It cuts what is implausible, and that may be all that a constraint allows.
    "dola": _row("top_logprobs explain dola_layers", draws="asked"),
    "prompt-lookup": _row(
        "top_logprobs explain constraint num_draft_tokens", draws="asked", blind_to=_NO_MIROSTAT
    ),
    "speculative": _row(
        "top_logprobs explain constraint num_draft_tokens draft",
        draws="asked",
        blind_to=_NO_MIROSTAT,
    ),
}


def reads(name: StrategyName, *, sampling: bool = False) -> frozenset[str]:
    """The fields of SamplingParams and StrategyOptions that a strategy reads; it ignores the rest.

    `sampling` is whether tokens are drawn, for strategies that can be asked to.
    """
    row = READS[name]
    drawing = row.draws == "always" or (row.draws == "asked" and sampling)
    return row.options | _SHAPING | (_DRAWING - row.blind_to if drawing else frozenset())
