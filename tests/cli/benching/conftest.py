"""The machine's limits are measured once for all trials, as one costs more than a short trial."""

from __future__ import annotations

import pytest
import torch

from llmcli.bench.clock import Clock
from llmcli.bench.probes import Limits, measure_limits
from llmcli.engine import benching

_MEASURED: dict[tuple[torch.device, torch.dtype], Limits] = {}


def _once(device: torch.device, dtype: torch.dtype, clock: Clock) -> Limits:
    if (device, dtype) not in _MEASURED:
        _MEASURED[device, dtype] = measure_limits(device, dtype, clock)
    return _MEASURED[device, dtype]


@pytest.fixture(autouse=True)
def limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benching, "measure_limits", _once)
