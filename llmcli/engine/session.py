"""Session: the KV cache that one run leaves to the next, cut back to the ids that they share.

Chat turns, samples of one prompt and compared strategies all begin from it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from llmcli.cache import CacheKind, KVCache, make_cache
from llmcli.generation.stepper import Stepper
from llmcli.model import Decoder


class Session:
    """Runs over one decoder with one kind of cache, one after the other.

    What is reused is the longest common prefix of ids, never a length alone; the prompt's last
    token is always computed anew, since its logits are needed.
    """

    def __init__(self, decoder: Decoder, kind: CacheKind) -> None:
        self.kind = kind
        self._decoder = decoder
        self._cache = make_cache(kind, decoder.spec)
        self._last: Stepper | None = None
        self._held: tuple[int, ...] = ()

    @property
    def cache(self) -> KVCache | None:
        return self._cache

    @property
    def held(self) -> tuple[int, ...]:
        """The ids whose keys and values the cache holds."""
        if self._last is not None and self._cache is not None:
            if self._last.ids.shape[0] > 1:
                self._last.reorder(torch.zeros(1, dtype=torch.long, device=self._decoder.device))
            trusted = self._cache.length if self._cache.trusted else 0
            self._held = tuple(self._last.ids[0, :trusted].tolist())
            self._last = None
        return self._held

    def shared(self, ids: Sequence[int]) -> int:
        """How many of `ids` would be reused."""
        most = min(len(self.held), len(ids) - 1)
        return next((at for at in range(most) if self.held[at] != ids[at]), max(most, 0))

    def stepper(
        self,
        ids: Sequence[int],
        *,
        planned: int = 0,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> Stepper:
        """A stepper to feed all of `ids` to first; it computes those that the cache lacks."""
        if self._cache is not None:
            over = self._cache.length - self.shared(ids)
            if over:
                whole = self._cache.length
                self._cache.rewind(over if self._cache.can_rewind(over) else whole)
            self._held = self._held[: self._cache.length]
        self._last = Stepper(self._decoder, self._cache, planned=planned, on_progress=on_progress)
        return self._last

    def fork(self) -> Session:
        """An independent session that begins with the same content."""
        other = Session(self._decoder, self.kind)
        other._held = self.held
        if self._cache is not None:
            other._cache = self._cache.fork()
        return other
