"""Classifier-free guidance (arXiv 2306.17806): towards the prompt, away from a negative one.

A second stepper continues the negative prompt with the same new ids. With log-probabilities of
both, the chain begins with negative + scale * (prompt - negative); scale 1 is no guidance.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from llmcli.generation.stepper import Stepper


def guided(
    stepper: Stepper, new: Tensor, other: Stepper, *, negative_ids: Sequence[int], scale: float
) -> tuple[Tensor, Tensor]:
    """Feed new ids [1,T] to both; the decoder's own logits [1,V] and the guided ones.

    `other` begins with `negative_ids`, or with the prompt's last id where there are none.
    """
    logits = stepper.feed(new)
    if other.ids.shape[1] == 0:
        new = torch.tensor([negative_ids], device=new.device) if negative_ids else new[:, -1:]
    towards, away = logits.log_softmax(-1), other.feed(new).log_softmax(-1)
    return logits, torch.lerp(away, towards, scale)
