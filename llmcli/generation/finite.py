"""The guard against NaN and infinity: no token is ever chosen from a broken distribution."""

from __future__ import annotations

import math

from torch import Tensor

from llmcli.errors import GenerationError
from llmcli.generation.stepper import Stepper
from llmcli.model import Decoder
from llmcli.model.diagnose import first_bad_part


def check_finite(total: float, stepper: Stepper, step: int) -> None:
    """Raise `not_finite` where the sum of a row of logits is NaN or infinite."""
    if not math.isfinite(total):
        raise not_finite(stepper.decoder, stepper.ids, step)


def require_finite(decoder: Decoder, ids: Tensor, *computed: Tensor) -> None:
    """Raise `not_finite` where anything computed from ids [B,T] is NaN or infinite."""
    if not all(bool(one.isfinite().all()) for one in computed):
        raise not_finite(decoder, ids, 1)


def not_finite(decoder: Decoder, ids: Tensor, step: int) -> GenerationError:
    """The error for ids [B,T] whose next logits are NaN or infinite.

    The message names the new token's number, the dtype and the first part of the decoder
    whose output is not finite, found by one more forward pass.
    """
    dtype = str(decoder.dtype).removeprefix("torch.")
    where = first_bad_part(decoder, ids) or "a state that a second pass lacks"
    other = "float32" if dtype == "bfloat16" else "bfloat16 or float32"
    return GenerationError(
        f"the logits for new token {step} are not finite in {dtype}; the first bad values "
        f"come from {where}",
        hint=f"the weights overflow in {dtype} or are damaged; try --dtype {other}",
    )
