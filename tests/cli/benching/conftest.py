"""bench-cache in these tests measures the machine itself on little."""

from __future__ import annotations

from functools import partial

import pytest

from llmcli.bench import probes
from llmcli.engine import benching


@pytest.fixture(autouse=True)
def small_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine's limits measured on little: what they are decides nothing here."""
    small = partial(probes.measure_limits, read_bytes=2**20)
    monkeypatch.setattr(probes, "_MATRIX", 64)
    monkeypatch.setattr(benching, "measure_limits", small)
