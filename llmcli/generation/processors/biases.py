"""Processors that favour, forbid or delay given ids."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

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


def sequence_bias(biases: Sequence[tuple[Sequence[int], float]]) -> Processor:
    """Add a number to the last id of each run of ids, where the others are what comes before.

    A run of one id always counts. Where a bias of -inf would leave nothing, none is applied.
    """

    def process(ids: Tensor, logits: Tensor) -> Tensor:
        shaped = logits.clone()
        for run, bias in biases:
            start = torch.tensor(run[:-1], dtype=torch.long, device=ids.device)
            if len(start) > ids.shape[1]:
                continue
            here = (ids[:, ids.shape[1] - len(start) :] == start).all(-1)
            shaped[here, run[-1]] += bias
        return torch.where(shaped.isfinite().any(-1, keepdim=True), shaped, logits)

    return process


def first_suppress(banned: Collection[int], prompt: int) -> Processor:
    """Cut the given ids as the first after the `prompt` first ones."""
    forbid = suppress(banned)

    def process(ids: Tensor, logits: Tensor) -> Tensor:
        return forbid(ids, logits) if ids.shape[1] == prompt else logits

    return process


def min_new_tokens(count: int, stop_ids: Collection[int], prompt: int) -> Processor:
    """Cut the stop ids until `count` ids follow the `prompt` first ones."""
    forbid = suppress(stop_ids)

    def process(ids: Tensor, logits: Tensor) -> Tensor:
        return forbid(ids, logits) if ids.shape[1] - prompt < count else logits

    return process
