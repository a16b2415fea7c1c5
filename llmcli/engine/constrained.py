"""What a grammar goes with, said before any weight is read. Must not import torch or numpy."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from llmcli.errors import UsageError
from llmcli.generation.reads import STRATEGY_NAMES, StrategyName, reads
from llmcli.text.grammar import Grammar


def check_grammar(
    grammar: Grammar | None,
    strategy: StrategyName | None,
    *,
    stop_strings: Sequence[str],
    stop_ids: Collection[int] | None = None,
) -> None:
    """Raise UsageError for what the grammar contradicts; None where something is not known yet."""
    if grammar is None:
        return
    if stop_strings:
        raise UsageError(
            f"--stop does not go with --{grammar.kind}: it would cut the text anywhere",
            hint="the grammar itself says where the text ends",
        )
    if strategy is None:
        return
    if "constraint" not in reads(strategy):
        able = ", ".join(name for name in STRATEGY_NAMES if "constraint" in reads(name))
        raise UsageError(
            f"strategy {strategy} does not read --{grammar.kind}: it leaves out tokens that "
            "the grammar may need",
            hint=f"these do: {able}",
        )
    if strategy == "beam" and stop_ids is not None and not stop_ids:
        raise UsageError(
            f"strategy beam with --{grammar.kind} needs an end token to tell finished beams by, "
            "and there is none",
            hint="leave --ignore-eos out, or use another --strategy",
        )
