"""Sizes that several families derive in the same way. Must not know any single family."""

from __future__ import annotations

from llmcli.checkpoint.config import ConfigReader
from llmcli.errors import CheckpointError

# Far above any real model; a damaged count must not fill the memory before it is refused.
_MAX_LAYERS = 10_000


def read_head_dim(config: ConfigReader, *, hidden: int, heads: int) -> int:
    """`head_dim` as the config gives it, else hidden / heads, which must come out whole."""
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
