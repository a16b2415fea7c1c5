"""Whether a decoder's steps can be recorded and played again: tried on a few before any is trusted.

Must not know what records them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from llmcli.cache import default_kind, make_cache
from llmcli.model import Decoder
from llmcli.model.captured import Record, uncapturable

# The first two are run as they are, the third is recorded, and it and the others are played.
_PROMPT, _STEPS = 6, 5


def capture(decoder: Decoder, record: Record) -> str | None:
    """Let the decoder's steps be recorded; where that cannot be, they stay, and this says why."""
    why = uncapturable(decoder.spec)
    if why is None and decoder.spec.context < _PROMPT + _STEPS:
        why = "the context is short"
    if why is not None:
        return why
    decoder.capture(record)
    try:
        why = _difference(decoder)
    except RuntimeError as error:
        why = f"recording a step failed: {str(error).splitlines()[0]}"
    if why is not None:
        decoder.capture(None)
    return why


def _difference(decoder: Decoder) -> str | None:
    """What played steps do that ordinary ones do not, on ids 0, 1, 2, ..."""
    played = _steps(decoder)
    with decoder.watched():
        plain = _steps(decoder)
    off = ((played - plain).norm() / plain.norm()).item()
    # In 16 bits two ways of adding up differ by a percent or so after many layers.
    allowed = 1e-3 if decoder.dtype in (torch.float32, torch.float64) else 0.05
    return None if off <= allowed else f"recorded steps are off by {off:.2g}"


@torch.inference_mode()
def _steps(decoder: Decoder) -> Tensor:
    """Logits [1,STEPS,V] of ids that are fed one by one."""
    ids = torch.arange(_PROMPT + _STEPS, device=decoder.device)[None] % decoder.spec.vocab_size
    cache = make_cache(default_kind(decoder.spec), decoder.spec)
    decoder(ids[:, :_PROMPT], cache)
    logits = [decoder(one, cache) for one in torch.split(ids[:, _PROMPT:], 1, 1)]
    return torch.cat(logits, 1).to(torch.float32)
