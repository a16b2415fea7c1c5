"""What a generation cost: counts, times, bytes. Must not know terminals."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import torch


@dataclass(slots=True)
class Stats:
    """Seconds are spent in the generation itself; time in which the caller prints is left out.

    `first_token_seconds` runs from the start of the prefill to the first new token; it is None
    where there was none. `at_once`: all tokens came at the end, as those of a search do.
    """

    prompt_tokens: int = 0
    prefilled_tokens: int = 0
    new_tokens: int = 0
    load_seconds: float = 0.0
    first_token_seconds: float | None = None
    decode_seconds: float = 0.0
    at_once: bool = False
    cache_bytes: int = 0
    dropped_tokens: int = 0
    peak_memory_bytes: int | None = None

    @property
    def prefill_rate(self) -> float | None:
        """Prefilled tokens per second up to the first new token; None where it is not known."""
        if self.at_once:
            return None
        return _rate(self.prefilled_tokens, self.first_token_seconds)

    @property
    def decode_rate(self) -> float | None:
        """New tokens per second after the first, or where they came at once, over the whole run.

        None for fewer than two.
        """
        if self.at_once and self.new_tokens > 1:
            return _rate(self.new_tokens, (self.first_token_seconds or 0.0) + self.decode_seconds)
        return _rate(self.new_tokens - 1, self.decode_seconds)


def peak_memory(device: torch.device) -> int | None:
    """Peak bytes: of the CUDA device, else of this process; None where that is not known."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _rate(count: int, seconds: float | None) -> float | None:
    return count / seconds if count > 0 and seconds else None
