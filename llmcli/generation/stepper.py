"""Stepper: the hinge of the KV toggle. It owns the ids and knows what is left to compute.

One expression, `ids if cache is None else ids[:, cache.seen:]`, serves prefill, decode,
prefix reuse and roll-back; no strategy knows whether there is a cache.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from llmcli.cache import KVCache
from llmcli.errors import GenerationError
from llmcli.generation.limit import Limit
from llmcli.model import Decoder

# Long prompts go through in pieces, so that activations stay small and progress is seen.
PREFILL_CHUNK = 512


@dataclass(frozen=True, slots=True)
class Ready:
    """The logits [1,V] that follow `ids`, computed before under rotary tables of this regime."""

    ids: tuple[int, ...]
    logits: Tensor
    regime: tuple[int, ...]


class Stepper:
    """Feeds new ids [B,T] to a decoder and returns the logits [B,V] that follow them.

    `planned` is the length that the run may reach; a rotary scaling that depends on it (dynamic
    NTK) reads it, and memory taken ahead for recorded steps ends there. `on_progress(done, total)`
    is called after each piece of a prefill.
    `prefilled` is how many ids the first feed computed; the rest of them the cache held.
    `ready` spares the first feed of exactly its ids, whose keys and values the cache then holds.
    `limit` says how many tokens the cache may hold, and which it drops where more come.
    `pads` [B] counts the ids in front of each row that only fill it up to the length of the
    others; None where no row has any.
    """

    def __init__(
        self,
        decoder: Decoder,
        cache: KVCache | None,
        *,
        planned: int = 0,
        chunk: int = PREFILL_CHUNK,
        on_progress: Callable[[int, int], None] | None = None,
        ready: Ready | None = None,
        pads: Tensor | None = None,
        limit: Limit | None = None,
    ) -> None:
        assert limit is None or (cache is not None and pads is None and limit.size >= limit.least)
        self.decoder = decoder
        self.cache = cache
        self.ids = torch.empty(1, 0, dtype=torch.long, device=decoder.device)
        self.prefilled: int | None = None
        self.pads = pads
        self._planned = planned
        if cache is not None:
            cache.planned = planned
        self._chunk = chunk
        self._on_progress = on_progress
        self._ready = ready
        self._limit = limit

    def feed(self, new: Tensor) -> Tensor:
        """Append `new` and return float32 (or wider) logits [B,V] for the token after it."""
        known = self._known(new)
        return self.feed_fresh(new) if known is None else known

    def feed_fresh(self, new: Tensor) -> Tensor:
        """The same, for those who watch the decoder at work: its last id is always computed."""
        return _widened(self._feed(new, partial(self.decoder, last_only=True)))[:, -1]

    def feed_each(self, new: Tensor) -> Tensor:
        """Append `new` and return logits [B,T,V] for the token after each of its ids."""
        # Without a cache all ids go through the layers, and only the new ones through the head.
        streams = self._feed(new, self.decoder.hidden)[:, -new.shape[1] :]
        with torch.inference_mode():
            return _widened(self.decoder.unembed(streams))

    def feed_with_states(self, new: Tensor) -> tuple[Tensor, Tensor]:
        """Append `new`; the normed streams [B,T,C] at its ids, and logits [B,V] after the last."""
        held = self.ids.shape[1]
        if self.cache is not None and self.cache.seen > held:
            # A prefix left in the cache by an earlier run has no streams: it is computed anew.
            self.cache.clear()
        streams = self._feed(new, self.decoder.hidden)[:, -new.shape[1] :]
        with torch.inference_mode():
            logits = self.decoder.unembed(streams[:, -1:])[:, -1]
            return _widened(self.decoder.norm(streams)), _widened(logits)

    def sibling(self) -> Stepper:
        """A stepper of the same kind over the same decoder, with nothing fed and no progress."""
        other = copy(self)
        other.ids = self.ids[:1, :0]
        other.prefilled = other.pads = None
        other._on_progress = None
        other._ready = None
        if self.cache is not None:
            other.cache = self.cache.fork()
            other.cache.clear()
        return other

    def reorder(self, rows: Tensor) -> None:
        """Make row n a copy of the former row `rows[n]`; the number of rows may change."""
        self.ids = self.ids.index_select(0, rows)
        if self.pads is not None:
            self.pads = self.pads.index_select(0, rows)
        if self.cache is not None:
            self.cache.reorder(rows)

    def _known(self, new: Tensor) -> Tensor | None:
        """The logits after `new` where this run begins with just what an earlier one computed."""
        ready, self._ready = self._ready, None
        if ready is None or self.ids.shape[1] or new.tolist() != [list(ready.ids)]:
            return None
        held = self.cache
        if self.decoder.spec.regime(len(ready.ids), self._planned) != ready.regime or (
            held is not None and not (held.trusted and held.seen == len(ready.ids))
        ):
            return None
        self.ids, self.prefilled = new, 0
        return ready.logits

    def _feed(self, new: Tensor, forward: Callable[..., Tensor]) -> Tensor:
        held = self.ids.expand(new.shape[0], -1) if self.ids.shape[1] == 0 else self.ids
        self.ids = torch.cat((held, new), 1)
        regime = self.decoder.spec.regime(self.ids.shape[1], self._planned)
        if self.cache is not None and not (self.cache.regime == regime and self.cache.trusted):
            # The rotary tables change with the length: what they turned before is of no use.
            self.cache.clear()
        # Of what an earlier run left, at least the last id is computed anew for its logits.
        self._cut_back(self.ids.shape[1] - 1)
        pending = self.ids if self.cache is None else self.ids[:, self.cache.seen :]
        if self.prefilled is None:
            self.prefilled = pending.shape[1]
        with torch.inference_mode():
            self._make_room(pending.shape[1])
            settled = partial(forward, regime=regime, pads=self.pads, piece=self._chunk)
            return self._run(pending, settled)

    def rewind(self, count: int) -> None:
        """Forget the last `count` ids; a cache that cannot take them back is computed anew.

        Raises ValueError where there are not so many.
        """
        held = self.ids.shape[1]
        if not 0 <= count <= held:
            raise ValueError(f"cannot rewind {count} of {held} ids")
        self.ids = self.ids[:, : held - count]
        self._cut_back(self.ids.shape[1])

    def _cut_back(self, length: int) -> None:
        if self.cache is not None and (over := self.cache.seen - length) > 0:
            self.cache.rewind(over if self.cache.can_rewind(over) else self.cache.length)

    def _make_room(self, new: int) -> None:
        limit, cache = self._limit, self.cache
        if limit is None or cache is None:
            return
        while cache.length + new > limit.size:
            first, count = limit.drop(cache.dropped)
            if count > cache.length - first:
                raise GenerationError(
                    f"{new} tokens come at once; a context of {limit.size} has no room for them",
                    hint="a larger context, or fewer tokens",
                )
            self.decoder.drop(cache, first, count)

    def _run(self, pending: Tensor, forward: Callable[..., Tensor]) -> Tensor:
        total = pending.shape[1]
        if self.cache is None or total <= self._chunk:
            out = forward(pending, self.cache)
            self._report(total, total)
            return out
        pieces: list[Tensor] = []
        for start in range(0, total, self._chunk):
            piece = pending[:, start : start + self._chunk]
            pieces.append(forward(piece, self.cache))
            self._report(start + piece.shape[1], total)
        return torch.cat(pieces, 1)

    def _report(self, done: int, total: int) -> None:
        if self._on_progress is not None and total > 1:
            self._on_progress(done, total)


def _widened(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))
