"""The constraint's stage of the chain: what a grammar forbids is cut, and its end is an end."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import torch
from torch import Tensor

from llmcli.errors import GenerationError
from llmcli.generation.constraint import Constraint
from llmcli.generation.processors.base import CUT, Processor


def constrain(constraint: Constraint, stop_ids: Collection[int], prompt: int) -> Processor:
    """Cut the ids that the constraint forbids after the `prompt` first ones.

    Stop ids are allowed exactly where the text may end. Raises GenerationError where nothing is
    left to choose.
    """
    stops = sorted(stop_ids)
    ending = frozenset(stop_ids)
    rows: list[Constraint] = []

    def row_mask(row: int, new: list[int], logits: Tensor) -> Tensor | None:
        """Ids allowed [V]; None after the end, where guesses of what never comes are looked at."""
        if not ending.isdisjoint(new):
            return None
        while len(rows) <= row:
            rows.append(constraint.fork())
        if not stops and rows[row].ended(new):
            return None
        known = rows[row].allowed(new)
        mask = np.zeros(logits.shape[-1], dtype=np.bool_)
        mask[: known.shape[0]] = known[: mask.shape[0]]
        mask[stops] = rows[row].may_end(new)
        if not mask.any():
            raise GenerationError(
                f"nothing can follow at new token {len(new) + 1}: the vocabulary has no token "
                "that the constraint allows there",
                hint="the grammar asks for characters that this model cannot write",
            )
        return torch.from_numpy(mask).to(logits.device)

    def process(ids: Tensor, logits: Tensor) -> Tensor:
        kept = []
        for row, new in enumerate(ids[:, prompt:].tolist()):
            mask = row_mask(row, new, logits)
            one = logits[row] if mask is None else logits[row].masked_fill(~mask, CUT)
            if mask is not None and bool(one.amax() == CUT):
                raise GenerationError(
                    f"nothing is left at new token {len(new) + 1}: the constraint allows "
                    f"{int(mask.sum())} tokens there, and other options forbid them all",
                    hint="options that forbid tokens, such as --no-repeat-ngram, --suppress or "
                    "--min-new-tokens, contradict this grammar",
                )
            kept.append(one)
        return torch.stack(kept)

    return process
