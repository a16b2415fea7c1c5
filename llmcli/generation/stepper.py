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

    `on_progress(done, total)` is called after each piece of a prefill.
    """

    def __init__(
        self,
        decoder: Decoder,
        cache: KVCache | None,
        *,
        chunk: int = PREFILL_CHUNK,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> None:
        self.decoder = decoder
        self.cache = cache
        self.ids = torch.empty(1, 0, dtype=torch.long, device=decoder.device)
        self._chunk = chunk
        self._on_progress = on_progress

    def feed(self, new: Tensor) -> Tensor:
        """Append `new` and return float32 (or wider) logits [B,V] for the token after it."""
        return self._feed(new, last_only=True)[:, -1]

    def feed_each(self, new: Tensor) -> Tensor:
        """Append `new` and return logits [B,T,V] for the token after each of its ids."""
        return self._feed(new, last_only=False)[:, -new.shape[1] :]

    def reorder(self, rows: Tensor) -> None:
        """Make row n a copy of the former row `rows[n]`; the number of rows may change."""
        self.ids = self.ids.index_select(0, rows)
        if self.cache is not None:
            self.cache.reorder(rows)

    def _feed(self, new: Tensor, *, last_only: bool) -> Tensor:
        held = self.ids.expand(new.shape[0], -1) if self.ids.shape[1] == 0 else self.ids
        self.ids = torch.cat((held, new), 1)
        pending = self.ids if self.cache is None else self.ids[:, self.cache.length :]
        with torch.inference_mode():
            logits = self._run(pending, last_only=last_only)
            return logits.to(torch.promote_types(logits.dtype, torch.float32))

    def rewind(self, count: int) -> None:
        """Forget the last `count` ids, in the cache as well where they reached it.

        Raises ValueError where there are not so many.
        """
        held = self.ids.shape[1]
        if not 0 <= count <= held:
            raise ValueError(f"cannot rewind {count} of {held} ids")
        self.ids = self.ids[:, : held - count]
        if self.cache is not None and self.cache.length > self.ids.shape[1]:
            self.cache.rewind(self.cache.length - self.ids.shape[1])

    def _run(self, pending: Tensor, *, last_only: bool) -> Tensor:
        total = pending.shape[1]
        if self.cache is None or total <= self._chunk:
            logits: Tensor = self.decoder(pending, self.cache, last_only=last_only)
            self._report(total, total)
            return logits
        pieces: list[Tensor] = []
        for start in range(0, total, self._chunk):
            piece = pending[:, start : start + self._chunk]
            logits = self.decoder(piece, self.cache, last_only=last_only)
            pieces = [logits] if last_only else [*pieces, logits]
            self._report(start + piece.shape[1], total)
        return torch.cat(pieces, 1)

    def _report(self, done: int, total: int) -> None:
        if self._on_progress is not None and total > 1:
            self._on_progress(done, total)
