"""Where the context ends, and what happens there: the run stops, or the oldest tokens go.

Must not import torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from llmcli.errors import UnsupportedError, UsageError
from llmcli.generation.limit import Limit
from llmcli.generation.reads import StrategyName

if TYPE_CHECKING:
    from llmcli.cache import CacheKind
    from llmcli.spec import DecoderSpec

Overflow = Literal["stop", "shift"]

# One text that only grows: these never take a token back or begin anew.
_ABLE: tuple[StrategyName, ...] = ("greedy", "sample", "dola")


def check_limits(
    max_context: int | None, overflow: Overflow, strategy: StrategyName | None, *, cached: bool
) -> None:
    """Raise UsageError for what can be told wrong before anything is loaded."""
    if max_context is not None and max_context < 1:
        raise UsageError(
            f"--max-context is {max_context}; it must be at least 1",
            hint="leave it out for the model's own context",
        )
    if overflow == "stop":
        return
    if not cached:
        raise UsageError(
            "--overflow shift does not go with --no-kv-cache: what is kept was computed after "
            "tokens that are gone, and cannot be computed anew without them",
            hint="leave --no-kv-cache out",
        )
    if strategy is not None and strategy not in _ABLE:
        raise UsageError(
            f"strategy {strategy} does not go with --overflow shift",
            hint=f"these do: {', '.join(_ABLE)}",
        )


def effective_context(spec: DecoderSpec, max_context: int | None) -> int:
    """Tokens that a text may have. Raises UsageError for more than the model's own."""
    if max_context is not None and max_context > spec.context:
        raise UsageError(
            f"--max-context is {max_context}; this model's context holds {spec.context}",
            hint="leave it out, or give at most that",
        )
    return spec.context if max_context is None else max_context


def check_shift(spec: DecoderSpec, limit: Limit, kind: CacheKind) -> None:
    """Raise where this decoder or cache cannot drop what `limit` says in a context of its size."""
    if spec.shift_obstacle is not None:
        raise UnsupportedError(
            f"--overflow shift cannot be done with this model: {spec.shift_obstacle}",
            hint="leave --overflow out; the run then stops at the end of the context",
        )
    if limit.size < limit.least:
        raise UsageError(
            f"the context holds {limit.size} tokens; --overflow shift needs at least "
            f"{limit.least}, as {limit.fixed} at the start always stay",
            hint=f"use a larger --max-context (of at most {spec.context}), or leave --overflow out",
        )
    if kind.startswith("quantized"):
        raise UsageError(
            f"--overflow shift does not go with --cache {kind}: packed keys cannot be turned to "
            "new positions without loss",
            hint="use --cache growing or static",
        )
    window = max(
        (one.window for one in spec.layers if one.window and one.window < limit.size), default=0
    )
    for first, count in limit.drops():
        if window > limit.size - count - first:
            raise UsageError(
                f"--overflow shift in a context of {limit.size} keeps "
                f"{limit.size - count - first} tokens beside the first {first}; this model's "
                f"layers look {window} back",
                hint=f"use a larger --max-context (of at most {spec.context})",
            )
