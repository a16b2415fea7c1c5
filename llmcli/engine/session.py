"""Session: the KV cache that one run leaves to the next, cut back to the ids that they share.

Chat turns, samples of one prompt and compared strategies all begin from it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from llmcli.cache import CacheKind, KVCache, make_cache
from llmcli.generation.limit import Limit
from llmcli.generation.stepper import Ready, Stepper
from llmcli.model import Decoder


class Session:
    """Runs over one decoder with one kind of cache, one after the other.

    What is reused is the longest common prefix of ids, never a length alone; the prompt's last
    token is computed anew, since its logits are needed, unless `prefill` has kept them.
    """

    def __init__(self, decoder: Decoder, kind: CacheKind) -> None:
        self.kind = kind
        self._decoder = decoder
        self._cache = make_cache(kind, decoder.spec)
        self._last: Stepper | None = None
        self._held: tuple[int, ...] = ()
        self._ready: Ready | None = None

    @property
    def cache(self) -> KVCache | None:
        return self._cache

    @property
    def held(self) -> tuple[int, ...]:
        """The ids whose keys and values the cache holds, those that it dropped since included."""
        # A run that was broken off before it fed anything has left the cache as it was
        if self._last is not None and self._cache is not None and self._last.ids.shape[1]:
            if self._last.ids.shape[0] > 1:
                self._last.reorder(torch.zeros(1, dtype=torch.long, device=self._decoder.device))
            trusted = self._cache.seen if self._cache.trusted else 0
            self._held = tuple(self._last.ids[0, :trusted].tolist())
            self._last = None
        return self._held

    def shared(self, ids: Sequence[int]) -> int:
        """How many of `ids` would be reused."""
        most = min(len(self.held), len(ids) - 1)
        return next((at for at in range(most) if self.held[at] != ids[at]), max(most, 0))

    def reusable(self, ids: Sequence[int]) -> int:
        """How many of `ids` would be spared: none where the cache cannot be cut back to them."""
        shared = self.shared(ids)
        if self._cache is None or not self._cache.can_rewind(self._cache.seen - shared):
            return 0
        return shared

    def stepper(
        self,
        ids: Sequence[int],
        *,
        planned: int = 0,
        on_progress: Callable[[int, int], None] | None = None,
        limit: Limit | None = None,
    ) -> Stepper:
        """A stepper to feed all of `ids` to first; it computes those that the cache lacks.

        `limit` is how many tokens the cache may hold, and which go first (Stepper).
        """
        ready = self._ready if self._ready and self._ready.ids == tuple(ids) else None
        if self._cache is not None:
            whole = ready is not None and self.held == ready.ids
            over = self._cache.seen - (len(ids) if whole else self.shared(ids))
            if over:
                every = self._cache.length
                self._cache.rewind(over if self._cache.can_rewind(over) else every)
            self._held = self._held[: self._cache.seen]
            if self._cache.length == 0:
                # Only now is it known how much a static cache has to hold.
                self._cache = make_cache(self.kind, self._decoder.spec, planned=planned)
        self._last = Stepper(
            self._decoder,
            self._cache,
            planned=planned,
            on_progress=on_progress,
            ready=ready,
            limit=limit,
        )
        return self._last

    def prefill(
        self,
        ids: Sequence[int],
        *,
        planned: int = 0,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> int:
        """Compute `ids` now and keep the logits that follow; how many ids that took.

        A run of exactly these ids, here or in a fork, then begins with no prefill at all, and
        with the very numbers of a run of its own. `planned` is what that run will plan.
        """
        device = self._decoder.device
        stepper = self.stepper(ids, planned=planned, on_progress=on_progress)
        logits = stepper.feed(torch.tensor([list(ids)], dtype=torch.long, device=device))
        regime = self._decoder.spec.regime(len(ids), planned)
        self._ready = Ready(tuple(ids), logits, regime)
        return stepper.prefilled or 0

    def adopt(self, cache: KVCache, ids: Sequence[int]) -> None:
        """Take over a cache that holds these ids; it must be of the session's kind."""
        self._cache, self._held = cache, tuple(ids)
        self._last = self._ready = None

    def fork(self) -> Session:
        """An independent session that begins with the same content."""
        other = Session(self._decoder, self.kind)
        other._held = self.held
        other._ready = self._ready
        if self._cache is not None:
            other._cache = self._cache.fork()
        return other
