"""Processors that favour, forbid or delay given ids."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import torch
from torch import Tensor

from llmcli.generation.processors.base import CUT, Processor


def logit_bias(biases: Mapping[int, float]) -> Processor:
    """Add a number to the logit of each given id."""
    ids_ = torch.tensor(list(biases))
    values = torch.tensor(list(biases.values()))

    def process(_ids: Tensor, logits: Tensor) -> Tensor:
        return logits.index_add(
            -1, ids_.to(logits.device), values.to(logits).expand(logits.shape[0], -1)
        )

    return process


def suppress(banned: Collection[int]) -> Processor:
    """Cut the given ids."""
    index = torch.tensor(sorted(banned))

    def process(_ids: Tensor, logits: Tensor) -> Tensor:
        return logits.index_fill(-1, index.to(logits.device), CUT)

    return process


def min_new_tokens(count: int, stop_ids: Collection[int], prompt: int) -> Processor:
    """Cut the stop ids until `count` ids follow the `prompt` first ones."""
    forbid = suppress(stop_ids)

    def process(ids: Tensor, logits: Tensor) -> Tensor:
        return forbid(ids, logits) if ids.shape[1] - prompt < count else logits

    return process
