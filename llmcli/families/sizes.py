"""Sizes that several families derive in the same way. Must not know any single family."""

from __future__ import annotations

from typing import Any

from llmcli.checkpoint.config import ConfigReader
from llmcli.checkpoint.escape import printable
from llmcli.errors import CheckpointError

# Far above any real model; a damaged count must not fill the memory before it is refused.
_MAX_LAYERS = 10_000


def read_head_dim(
    config: ConfigReader, *, hidden: int, heads: int, absent: int | None = None
) -> int:
    """`head_dim` as the config gives it, else the model type's own (`absent`), else
    hidden / heads, which must come out whole.
    """
    if absent is not None and not config.has("head_dim"):
        return absent
    if config.raw("head_dim") is not None:
        head_dim = config.integer("head_dim")
        if head_dim < 1:
            raise CheckpointError(
                f"{config.origin} sets head_dim to {head_dim}, below 1",
                hint="correct the config, or fetch it again",
            )
        return head_dim
    if heads < 1 or hidden < 1 or hidden % heads:
        raise CheckpointError(
            f"{config.origin}: hidden size {hidden} is not a multiple of {heads} heads, "
            "and no head_dim is given",
            hint="correct the config, or fetch it again",
        )
    return hidden // heads


def read_num_layers(config: ConfigReader, key: str, default: int | None = None) -> int:
    """How many layers; without a default the key is required."""
    layers = config.integer(key) if default is None else config.integer(key, default)
    if not 1 <= layers <= _MAX_LAYERS:
        raise CheckpointError(
            f"{config.origin} sets {key} to {layers}, not between 1 and {_MAX_LAYERS}",
            hint="correct the config, or fetch it again",
        )
    return layers


def read_kv_heads(config: ConfigReader, heads: int, *, absent: int | None = None) -> int:
    """`num_key_value_heads`; null means all heads, absent the model type's own count or all."""
    if absent is not None and not config.has("num_key_value_heads"):
        return absent
    return config.integer("num_key_value_heads", heads)


def read_positive(config: ConfigReader, key: str, default: float) -> float:
    """A number above 0, as something is divided by it."""
    value = config.number(key, default)
    if value <= 0:
        raise CheckpointError(
            f"{config.origin} sets {key} to {value:g}, not above 0",
            hint="correct the config, or fetch it again",
        )
    return value


def read_interval(config: ConfigReader, key: str, default: int) -> int:
    """Every how many layers something recurs: at least 1."""
    value = config.integer(key, default)
    if value < 1:
        raise CheckpointError(
            f"{config.origin} sets {key} to {value}, below 1",
            hint="correct the config, or fetch it again",
        )
    return value


def read_layer_numbers(config: ConfigReader, key: str) -> frozenset[int]:
    """A list of whole numbers, such as indices of layers; absent or null is an empty one."""
    values: Any = config.raw(key)
    if values is None:
        return frozenset()
    if not isinstance(values, list) or any(type(value) is not int for value in values):
        raise CheckpointError(
            f"{config.origin} sets {key} to {printable(repr(values))}, not to whole numbers",
            hint="correct the config, or fetch it again",
        )
    return frozenset(values)


def read_flags(
    config: ConfigReader, key: str, count: int, *, absent: tuple[int, ...]
) -> tuple[int, ...]:
    """A list with a 0 or 1 for each layer."""
    values: Any = config.raw(key)
    if values is None:
        return absent
    if not isinstance(values, list) or len(values) < count or set(values) - {0, 1}:
        raise CheckpointError(
            f"{config.origin} sets {key} to {printable(repr(values))}, "
            f"not to a 0 or 1 for each of {count} layers",
            hint="correct the config, or fetch it again",
        )
    return tuple(values[:count])


def read_softcap(config: ConfigReader, key: str, *, absent: float | None) -> float | None:
    """A soft cap; null means none, while an absent key means the model type's own."""
    if not config.has(key):
        return absent
    return None if config.raw(key) is None else config.number(key)
