"""Numbers in 8 or 4 bits: groups of a row share a scale and a minimum, all rows alike.

A group of n values becomes n codes with value = minimum + scale * code, so in float32 no value
is off by more than half a scale. Must not know caches.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from llmcli.spec.caching import group_size

Bits = Literal[8, 4]


def pack(x: Tensor, bits: Bits) -> tuple[Tensor, Tensor]:
    """x [...,D] to codes [...,D or (D+1)//2] uint8 and scale and minimum [...,groups,2].

    Scale and minimum keep the dtype of x. A group of equal values has scale 0 and is exact.
    """
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    grouped = wide.reshape(*x.shape[:-1], -1, group_size(x.shape[-1]))
    low, high = grouped.aminmax(dim=-1, keepdim=True)
    scale = ((high - low) / (2**bits - 1)).to(x.dtype).to(wide.dtype)
    codes = ((grouped - low) / scale.where(scale > 0, 1)).round().clamp(0, 2**bits - 1)
    flat = codes.flatten(-2).to(torch.uint8)
    if bits == 4:
        if flat.shape[-1] % 2:
            flat = torch.nn.functional.pad(flat, (0, 1))
        flat = flat[..., 0::2] | (flat[..., 1::2] << 4)
    return flat, torch.cat((scale, low), -1).to(x.dtype)


def unpack(codes: Tensor, scales: Tensor, bits: Bits, width: int) -> Tensor:
    """What `pack` made of x [...,width], in the dtype of `scales`."""
    if bits == 4:
        codes = torch.stack((codes & 15, codes >> 4), -1).flatten(-2)[..., :width]
    grouped = codes.reshape(*scales.shape[:-1], -1).to(scales.dtype)
    return torch.addcmul(scales[..., 1:], grouped, scales[..., :1]).flatten(-2)
