"""Whether a decoder computes what the oracle does, and whether an alteration is seen."""

from __future__ import annotations

import torch

from llmcli.model import Decoder
from tests.families.alterations import Alteration, refit
from tests.oracle import Oracle, assert_close


def differs(theirs: Oracle, alteration: Alteration) -> bool:
    """Whether the alteration, where it applies, is seen by the comparison."""
    altered = alteration.alter(theirs.loaded.spec)
    if altered is None:
        return True
    parameters = dict(theirs.loaded.decoder.named_parameters())
    return not agrees(theirs, Decoder.filled(altered, refit(parameters, altered).items()))


def agrees(theirs: Oracle, decoder: Decoder) -> bool:
    try:
        with torch.inference_mode():
            ours = decoder(theirs.ids, last_only=False)[0]
        assert_close(ours, theirs.logits)
    except (AssertionError, RuntimeError):
        # A RuntimeError is a shape that fits no longer, which is loud enough.
        return False
    return True
