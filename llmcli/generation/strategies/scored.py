"""A chosen id made into a Token: the decoder's own logprob of it, and the check against NaN."""

from __future__ import annotations

import torch
from torch import Tensor

from llmcli.generation.finite import check_finite
from llmcli.generation.stepper import Stepper
from llmcli.generation.strategies.base import likeliest
from llmcli.generation.token import Token


def scored(logits: Tensor, chosen: Tensor, stepper: Stepper, *, step: int, top: int) -> Token:
    """The token of the id chosen [1] at new token `step`, from the decoder's logits [1,V].

    Raises GenerationError where these are not finite.
    """
    total = logits.logsumexp(-1)
    logprob = logits.gather(-1, chosen[:, None])[:, 0] - total
    # One copy to the host a step: the id, its logprob and the sum that shows any NaN or inf.
    facts = torch.stack((chosen.double(), logprob.double(), logits.sum(-1).double()))
    id_, logprob_, sum_ = facts[:, 0].tolist()
    check_finite(sum_, stepper, step)
    return Token(int(id_), logprob_, likeliest(logits - total[:, None], top))
