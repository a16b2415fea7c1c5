"""Scales that bring codes closest to the numbers they stand for, found by trying several.

The largest number of a group is a poor judge of its scale: a slightly larger or smaller one often
happens to suit the whole group better. All are tried on groups [..., G] of numbers, and the
squared error decides. Must not know how codes are held.
"""

from __future__ import annotations

import torch
from torch import Tensor

# What the largest magnitude may become. Above 127 it is cut by half a step; far below it,
# coarser steps lose more than a lucky fit wins.
_HIGHEST_CODES = torch.linspace(127.5, 121.0, 12).tolist()
# Steps that a group's range may be cut into for codes 0 to 15; beyond 15 its ends are cut.
_STEPS = torch.linspace(13.5, 16.5, 5).tolist()


def symmetric_scale(numbers: Tensor) -> Tensor:
    """[..., 1] for codes from -127 to 127; 0 for a group of zeros."""
    most = numbers.abs().amax(-1, keepdim=True)
    best, least = torch.zeros_like(most), torch.full_like(most, torch.inf)
    for highest in _HIGHEST_CODES:
        scale = most / highest
        off = numbers * _inverse(scale)
        off.round_().clamp_(-127, 127).mul_(scale).sub_(numbers)
        error = off.mul_(off).sum(-1, keepdim=True)
        better = error < least
        best, least = torch.where(better, scale, best), torch.where(better, error, least)
    return best


def scale_and_minimum(numbers: Tensor) -> tuple[Tensor, Tensor]:
    """Both [..., 1], for codes from 0 to 15, as they are once rounded to float16."""
    low, high = numbers.amin(-1, keepdim=True), numbers.amax(-1, keepdim=True)
    mean = numbers.mean(-1, keepdim=True)
    minimum = _rounded(low)
    scale = _rounded((high - minimum) / 15)
    least = _error(numbers, scale, minimum)
    for steps in _STEPS:
        codes = (numbers - low).mul_(_inverse((high - low) / steps)).round_().clamp_(0, 15)
        # The line through codes and numbers of least squares.
        middle = codes.mean(-1, keepdim=True)
        spread = codes.sub_(middle)
        slope = (spread * numbers).sum(-1, keepdim=True) * _inverse(
            (spread * spread).sum(-1, keepdim=True)
        )
        other_scale, other_minimum = _rounded(slope), _rounded(mean - slope * middle)
        error = _error(numbers, other_scale, other_minimum)
        better = error < least
        scale = torch.where(better, other_scale, scale)
        minimum = torch.where(better, other_minimum, minimum)
        least = torch.where(better, error, least)
    return scale, minimum


def codes_from_minimum(numbers: Tensor, scale: Tensor, minimum: Tensor) -> Tensor:
    """The nearest codes from 0 to 15, in float32."""
    return (numbers - minimum).mul_(_inverse(scale)).round_().clamp_(0, 15)


def _error(numbers: Tensor, scale: Tensor, minimum: Tensor) -> Tensor:
    off = codes_from_minimum(numbers, scale, minimum).mul_(scale).add_(minimum).sub_(numbers)
    return off.mul_(off).sum(-1, keepdim=True)


def _rounded(numbers: Tensor) -> Tensor:
    return numbers.to(torch.float16).to(torch.float32)


def _inverse(scale: Tensor) -> Tensor:
    return torch.where(scale != 0, 1 / scale, 0)
