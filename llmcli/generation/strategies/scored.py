"""A chosen id made into a Token: the decoder's own logprob of it, and the check against NaN."""

from __future__ import annotations

import torch
from torch import Tensor

from llmcli.generation.finite import check_finite
from llmcli.generation.stepper import Stepper
from llmcli.generation.strategies.base import likeliest
from llmcli.generation.token import Token


def scored(
    logits: Tensor,
    chosen: Tensor,
    stepper: Stepper,
    *,
    step: int,
    top: int,
    start: Tensor | None = None,
) -> Token:
    """The token of the id chosen [1] at new token `step`, from the decoder's logits [1,V].

    `start` is what the chain began with, where that is something else.
    Raises GenerationError where either is not finite.
    """
    logprobs = logits.log_softmax(-1)
    logprob = logprobs.gather(-1, chosen[:, None])[:, 0]
    whole = logits.sum(-1)
    if start is not None and start is not logits:
        # The best and not the sum, as a source may cut; NaN beats every number.
        whole = whole + start.amax(-1)
    # One copy to the host a step: the id, its logprob and the sum that shows any NaN or inf.
    facts = torch.stack((chosen.double(), logprob.double(), whole.double()))
    id_, logprob_, sum_ = facts[:, 0].tolist()
    check_finite(sum_, stepper, step)
    best = likeliest(logprobs, top) if top else ()
    return Token(int(id_), logprob_, best)
