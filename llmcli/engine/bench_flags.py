"""Which of the decoding flags each strategy of a trial is measured with. Must not know torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from llmcli.engine.flags import FLAG_NAMES, Flags, given_flags, unread
from llmcli.errors import UsageError
from llmcli.generation.reads import StrategyName


def flags_for(flags: Flags, strategy: StrategyName, seed: int) -> Flags:
    """Those of the flags that this strategy reads, as far as they can be measured."""
    # Only `sample` draws unasked; a second text or model is not measured.
    drawn = seed if strategy == "sample" else None
    chosen = replace(flags, strategy=strategy, seed=drawn, negative_prompt=None, draft_model=None)
    dropped: dict[str, Any] = dict.fromkeys(unread(chosen))
    return replace(chosen, **dropped)


def check_read(flags: Flags, strategies: Sequence[StrategyName], seed: int) -> None:
    """Raise UsageError for a flag that none of the strategies reads."""
    idle = given_flags(flags, FLAG_NAMES).keys() - {"seed"}
    for strategy in strategies:
        idle -= given_flags(flags_for(flags, strategy, seed), FLAG_NAMES).keys()
    if idle:
        names = ", ".join(sorted(f"--{name.replace('_', '-')}" for name in idle))
        raise UsageError(
            f"no strategy of {', '.join(strategies)} reads {names}",
            hint="leave it out, or add a --strategy that reads it",
        )
