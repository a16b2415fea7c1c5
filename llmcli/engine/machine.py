"""The machine that a run is made on: processor, cores, memory, device, versions."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from pathlib import Path

import torch

from llmcli.bench.report import Machine
from llmcli.model import Decoder


def machine_facts(decoder: Decoder, steps: str) -> Machine:
    """What a measurement must tell about where it was made, and in what its steps run."""
    device = str(decoder.device)
    if decoder.device.type == "cuda":
        device += f" ({torch.cuda.get_device_name(decoder.device)})"
    return Machine(
        cpu=_cpu_name(),
        cores=_physical_cores(),
        threads=torch.get_num_threads(),
        memory_bytes=_memory(),
        device=device,
        dtype=str(decoder.dtype).removeprefix("torch."),
        steps=steps,
        torch=torch.__version__,
        python=platform.python_version(),
        platform=platform.platform(),
    )


def _cpu_name() -> str:
    for line in _lines("/proc/cpuinfo"):
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _physical_cores() -> int:
    """Distinct cores of the CPUs that this process may use; what Python knows, elsewhere."""
    cores: set[tuple[str, ...]] = set()
    for cpu in usable_cpus():
        place = f"/sys/devices/system/cpu/cpu{cpu}/topology"
        names = ("physical_package_id", "core_id")
        cores.add(tuple(next(iter(_lines(f"{place}/{name}")), str(cpu)) for name in names))
    return len(cores) or os.cpu_count() or 1


def usable_cpus() -> Sequence[int]:
    """The numbers of the CPUs that this process may use; a core may be several."""
    try:
        return sorted(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        return range(os.cpu_count() or 1)


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
