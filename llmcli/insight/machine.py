"""What this machine has free: memory, and how fast weights can be read from it.

Must not know checkpoints.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

_MEMINFO = Path("/proc/meminfo")
_CGROUPS = (
    # (limit, in use): version 2, then 1
    (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")),
    (
        Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
        Path("/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ),
)
# Larger than the last caches of most CPUs, small enough to be made in no time.
_PROBE_BYTES = 128 << 20
_PROBE_SECONDS = 0.1


def free_memory(device: torch.device) -> int | None:
    """Bytes that a process may still take on `device`; None where that is not known."""
    if device.type == "cuda":
        import torch

        return int(torch.cuda.mem_get_info(device)[0])
    return available_memory()


def available_memory(
    meminfo: Path = _MEMINFO, cgroups: tuple[tuple[Path, Path], ...] = _CGROUPS
) -> int | None:
    """Main memory that is free or can be freed, within the limit of a container."""
    found = []
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in meminfo.read_text("ascii", "replace").splitlines():
            if line.startswith("MemAvailable:"):
                found.append(int(line.split()[1]) * 1024)
    for limit, used in cgroups:
        # "max" is no number: no limit
        with contextlib.suppress(OSError, ValueError):
            found.append(max(int(limit.read_text()) - int(used.read_text()), 0))
    return min(found, default=None)


def read_bandwidth(device: torch.device, dtype: torch.dtype, *, most_bytes: int) -> float:
    """Bytes a second of a matrix times a vector, which is what a decode step mostly does.

    The best of what fits into a tenth of a second; takes at most `most_bytes` of memory.
    """
    import torch

    rows = 1024
    columns = max(min(_PROBE_BYTES, most_bytes) // (rows * dtype.itemsize), 1)
    # Zeros are not written before they are touched, so pages are made real first.
    matrix = torch.empty(rows, columns, dtype=dtype, device=device).fill_(0.01)
    vector = torch.full((columns,), 0.01, dtype=dtype, device=device)
    best, begun = 0.0, time.perf_counter()
    with torch.inference_mode():
        _product(matrix, vector)
        while time.perf_counter() - begun < _PROBE_SECONDS or not best:
            start = time.perf_counter()
            _product(matrix, vector)
            best = max(best, matrix.nbytes / (time.perf_counter() - start))
    return best


def _product(matrix: torch.Tensor, vector: torch.Tensor) -> None:
    import torch

    torch.mv(matrix, vector)
    if matrix.device.type == "cuda":
        torch.cuda.synchronize(matrix.device)
