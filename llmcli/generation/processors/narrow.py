"""Running a chain only on the ids that are still possible.

A filter that looks at a whole vocabulary costs as much after top-k as before it. Once few ids are
left, those behind it get them alone, in ascending order, and their result is spread out again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from llmcli.generation.processors.base import CUT, Processor

# Those that look at no id, so that which ids stand before them makes no difference.
_BLIND = frozenset(
    ("top-p", "min-p", "typical-p", "epsilon-cutoff", "eta-cutoff", "top-n-sigma", "temperature")
)
# Leaving out fewer would not pay for picking them out.
_WORTH = 8


def run_narrowed(
    chain: Iterable[tuple[str, Processor]],
    ids: Tensor,
    logits: Tensor,
    tell: Callable[[str, Tensor], None] | None = None,
) -> Tensor:
    """The logits [B,V] after every processor, in order; `tell` gets each stage's, whole."""
    left: Tensor | None = None  # the ids [n] still possible in some row, where they are few
    part, size, cutting = logits, logits.shape[-1], False
    for name, process in chain:
        if left is None and cutting and name in _BLIND:
            left = _few(part)
            part = part if left is None else part.index_select(-1, left)
        elif left is not None and name not in _BLIND:
            part, left = _spread(part, left, size), None
        part = process(ids, part)
        cutting = cutting or name == "top-k" or name in _BLIND
        if tell is not None:
            tell(name, _spread(part, left, size))
    return _spread(part, left, size)


def _few(logits: Tensor) -> Tensor | None:
    """The ids that are possible in some row, or None where they are many.

    Elsewhere than on a CPU, asking how many there are would stop the device.
    """
    if logits.device.type != "cpu":
        return None
    possible = (logits > CUT).any(0)
    count = int(possible.sum())
    # None at all: NaN, which the caller has to see.
    if not count or count * _WORTH > logits.shape[-1]:
        return None
    return possible.nonzero()[:, 0]


def _spread(part: Tensor, left: Tensor | None, size: int) -> Tensor:
    if left is None:
        return part
    whole = torch.full((part.shape[0], size), CUT, dtype=part.dtype, device=part.device)
    return whole.index_copy_(-1, left, part)
