"""How fast this machine reads memory and multiplies matrices, measured, not looked up."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from llmcli.bench.clock import Clock

# Far above any CPU's last-level cache, far below any device's memory.
_READ_BYTES = 2**28
_MATRIX = 1024
_REPEATS = 5


@dataclass(frozen=True, slots=True)
class Limits:
    """Bytes read a second, and FLOPs of a matrix product a second; the best of several tries."""

    bytes_per_second: float
    flops_per_second: float

    def or_higher(self, other: Limits) -> Limits:
        """The higher of each."""
        return Limits(
            max(self.bytes_per_second, other.bytes_per_second),
            max(self.flops_per_second, other.flops_per_second),
        )


def measure_limits(
    device: torch.device, dtype: torch.dtype, clock: Clock, *, read_bytes: int = _READ_BYTES
) -> Limits:
    """Sums a large tensor, and multiplies two square matrices in the working dtype."""
    numbers = torch.ones(read_bytes // 4, dtype=torch.float32, device=device)
    left, right = (torch.randn(_MATRIX, _MATRIX, device=device).to(dtype) for _ in range(2))
    with torch.inference_mode():
        reading = _fastest(lambda: numbers.sum(), clock)
        multiplying = _fastest(lambda: left @ right, clock)
    return Limits(read_bytes / reading, 2 * _MATRIX**3 / multiplying)


def _fastest(work: object, clock: Clock) -> float:
    assert callable(work)
    work()
    times = []
    for _ in range(_REPEATS):
        start = clock.read()
        work()
        times.append(clock.read() - start)
    return min(times)
