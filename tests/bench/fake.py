"""A decoder on a device that takes its time: work is queued, and the clock must wait for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from llmcli.model import Decoder


@dataclass
class FakeDevice:
    """`now` moves with the caller, `busy` is when the queue is done; reading waits for it."""

    now: float = 0.0
    busy: float = 0.0
    reads: list[float] = field(default_factory=list)

    def launch(self, seconds: float) -> None:
        """Hand over work: the caller goes on at once."""
        self.now += 1e-6
        self.busy = max(self.busy, self.now) + seconds

    def read(self) -> float:
        self.now = max(self.now, self.busy)
        self.reads.append(self.now)
        return self.now


def on_device(decoder: Decoder, device: FakeDevice, cost: Callable[[int, int], float]) -> Any:
    """A patch under which each forward of n new after m held tokens takes cost(n, m) seconds."""
    real = Decoder.hidden

    def hidden(self: Decoder, ids: Any, cache: Any = None, **rest: Any) -> Any:
        held = cache.length if cache is not None else 0
        device.launch(cost(ids.shape[1], held))
        return real(self, ids, cache, **rest)

    return mock.patch.object(Decoder, "hidden", hidden)
