"""The report of a whole trial: machine, command, limits, cases, curves. It becomes JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from llmcli.bench.probes import Limits
from llmcli.bench.summary import ArmCurve, CaseSummary, Crossover

# Raised whenever the form of the JSON changes in a way that `compare` would misread.
FORMAT = 1


@dataclass(frozen=True, slots=True)
class Machine:
    """Where it ran; `steps` says in what kernels those of one token are computed."""

    cpu: str
    cores: int
    threads: int
    memory_bytes: int | None
    device: str
    dtype: str
    steps: str
    torch: str
    python: str
    platform: str


@dataclass(frozen=True, slots=True)
class Strategy:
    """What one strategy measured."""

    strategy: str
    settings: Mapping[str, Any]
    cases: tuple[CaseSummary, ...]
    curves: tuple[ArmCurve, ...]
    crossovers: tuple[Crossover, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """`whole` is false where the trial was broken off.

    `peak_memory_bytes` is that of the process, or of the CUDA device; `memory_scope` says whose
    bytes the arms' `memory` is, and is None where no arm has any.
    """

    version: str
    model: str
    command: str
    seed: int
    repeats: int
    warmup: int
    machine: Machine
    limits: Limits | None
    strategies: tuple[Strategy, ...]
    peak_memory_bytes: int | None
    memory_scope: str | None
    whole: bool

    def as_json(self) -> dict[str, Any]:
        """Plain values; NaN and infinities become null."""
        plain: dict[str, Any] = _finite({"format": FORMAT, **asdict(self)})
        return plain


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
