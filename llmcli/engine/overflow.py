"""Where the context ends, and what happens there: the run stops, or the oldest tokens go.

Must not import torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from llmcli.errors import UnsupportedError, UsageError
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


def check_shift(
    spec: DecoderSpec, context: int, kind: CacheKind, *, least: int, kept: int, sinks: int
) -> None:
    """Raise where this decoder or cache cannot shift in a context of this size.

    `least` is the smallest context that can; `kept` is what a drop leaves, the `sinks` included.
    """
    if spec.shift_obstacle is not None:
        raise UnsupportedError(
            f"--overflow shift cannot be done with this model: {spec.shift_obstacle}",
            hint="leave --overflow out; the run then stops at the end of the context",
        )
    if context < least:
        raise UsageError(
            f"--max-context is {context}; --overflow shift needs at least {least}",
            hint=f"{sinks} tokens at the start always stay",
        )
    if kind.startswith("quantized"):
        raise UsageError(
            f"--overflow shift does not go with --cache {kind}: packed keys cannot be turned to "
            "new positions without loss",
            hint="use --cache growing, static or offloaded",
        )
    window = max(
        (one.window for one in spec.layers if one.window and one.window < context), default=0
    )
    if window > kept - sinks:
        raise UsageError(
            f"--overflow shift in a context of {context} keeps {kept - sinks} tokens beside the "
            f"first {sinks}; this model's layers look {window} back",
            hint=f"use a larger --max-context (of at most {spec.context})",
        )
