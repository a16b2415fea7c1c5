"""Stepper: the hinge of the KV toggle. It owns the ids and knows what is left to compute.

One expression, `ids if cache is None else ids[:, cache.length:]`, serves prefill, decode,
prefix reuse and roll-back; no strategy knows whether there is a cache.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from llmcli.cache import KVCache
from llmcli.model import Decoder

# Long prompts go through in pieces, so that activations stay small and progress is seen.
PREFILL_CHUNK = 512


class Stepper:
    """Feeds new ids [B,T] to a decoder and returns the logits [B,V] that follow them.

    `planned` is the length that the run may reach; only a rotary scaling that depends on it
    (dynamic NTK) reads it. `on_progress(done, total)` is called after each piece of a prefill.
    """

    def __init__(
        self,
        decoder: Decoder,
        cache: KVCache | None,
        *,
        planned: int = 0,
        chunk: int = PREFILL_CHUNK,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> None:
        self.decoder = decoder
        self.cache = cache
        self.ids = torch.empty(1, 0, dtype=torch.long, device=decoder.device)
        self._planned = planned
        self._chunk = chunk
        self._on_progress = on_progress

    def feed(self, new: Tensor) -> Tensor:
        """Append `new` and return float32 (or wider) logits [B,V] for the token after it."""
        held = self.ids.expand(new.shape[0], -1) if self.ids.shape[1] == 0 else self.ids
        self.ids = torch.cat((held, new), 1)
        regime = self.decoder.spec.regime(self.ids.shape[1], self._planned)
        if self.cache is not None and not (self.cache.regime == regime and self.cache.trusted):
            # The rotary tables change with the length: what they turned before is of no use.
            self.cache.clear()
        pending = self.ids if self.cache is None else self.ids[:, self.cache.length :]
        with torch.inference_mode():
            logits = self._run(pending, regime)[:, -1]
            return logits.to(torch.promote_types(logits.dtype, torch.float32))

    def rewind(self, count: int) -> None:
        """Forget the last `count` ids; a cache that cannot take them back is computed anew.

        Raises ValueError where there are not so many.
        """
        held = self.ids.shape[1]
        if not 0 <= count <= held:
            raise ValueError(f"cannot rewind {count} of {held} ids")
        self.ids = self.ids[:, : held - count]
        if self.cache is not None and (over := self.cache.length - self.ids.shape[1]) > 0:
            self.cache.rewind(over if self.cache.can_rewind(over) else self.cache.length)

    def _run(self, pending: Tensor, regime: tuple[int, ...]) -> Tensor:
        total = pending.shape[1]
        if self.cache is None or total <= self._chunk:
            logits: Tensor = self.decoder(pending, self.cache, regime=regime)
            self._report(total, total)
            return logits
        for start in range(0, total, self._chunk):
            piece = pending[:, start : start + self._chunk]
            logits = self.decoder(piece, self.cache, regime=regime)
            self._report(start + piece.shape[1], total)
        return logits

    def _report(self, done: int, total: int) -> None:
        if self._on_progress is not None and total > 1:
            self._on_progress(done, total)
