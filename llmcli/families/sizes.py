"""Sizes that several families derive in the same way. Must not know any single family."""

from __future__ import annotations

from llmcli.checkpoint.config import ConfigReader
from llmcli.errors import CheckpointError


def read_head_dim(config: ConfigReader, *, hidden: int, heads: int) -> int:
    """`head_dim` as the config gives it, else hidden / heads, which must come out whole."""
    if config.raw("head_dim") is not None:
        return config.integer("head_dim")
    if heads < 1 or hidden % heads:
        raise CheckpointError(
            f"{config.origin}: hidden size {hidden} is not a multiple of {heads} heads, "
            "and no head_dim is given",
            hint="correct the config, or fetch it again",
        )
    return hidden // heads
