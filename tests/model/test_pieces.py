"""Ids without a cache in pieces: what one pass computes, with one layer's keys at a time."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from llmcli.cache import FullStore, KVCache
from llmcli.generation.stepper import Stepper
from llmcli.model import Decoder
from tests.insight.decoders import ALL, decoder_of, ids_for
from tests.oracle import Row
from tests.tiny import random_decoder

EXACT = 1e-9


def _assert_exact(got: Tensor, expected: Tensor) -> None:
    assert expected.dtype == torch.float64
    assert expected.std() > 0
    assert (got - expected).abs().max().item() <= EXACT * max(1.0, expected.std().item())


# 21 ids; windows are of 8, so that one piece wraps a ring, and another ends inside of it.
@pytest.mark.parametrize("row", ALL, ids=lambda row: row.name)
@torch.inference_mode()
def test_pieces_compute_what_one_pass_does(row: Row) -> None:
    decoder = decoder_of(row)
    ids = ids_for(decoder.spec)
    whole = decoder(ids, last_only=False)
    _assert_exact(decoder(ids, last_only=False, piece=9), whole)


@torch.inference_mode()
def test_one_layer_keeps_its_keys_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder, real = random_decoder(), FullStore.update
    held: list[tuple[int, ...]] = []

    def update(self: FullStore, length: int, keys: Tensor, values: Tensor) -> object:
        out = real(self, length, keys, values)
        held.append((keys.shape[2], self.capacity, sum(store.nbytes > 0 for store in stores)))
        return out

    stores: list[FullStore] = []
    made = FullStore.__init__

    def init(self: FullStore, **options: int) -> None:
        made(self, **options)
        stores.append(self)

    monkeypatch.setattr(FullStore, "__init__", init)
    monkeypatch.setattr(FullStore, "update", update)
    decoder(ids_for(decoder.spec), piece=8)
    # 21 ids as 8, 8 and 5, through each of two layers, in memory taken once.
    assert held == [(8, 21, 1), (8, 21, 1), (5, 21, 1)] * 2
    assert not any(store.nbytes for store in stores)


def test_the_stepper_feeds_pieces_without_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder, real = random_decoder(), Decoder.hidden
    pieces: list[int | None] = []

    def hidden(
        self: Decoder,
        ids: Tensor,
        cache: KVCache | None = None,
        *,
        piece: int | None,
        **rest: object,
    ) -> Tensor:
        pieces.append(piece)
        return real(self, ids, cache, piece=piece, **rest)  # type: ignore[arg-type]

    monkeypatch.setattr(Decoder, "hidden", hidden)
    ids = ids_for(decoder.spec)
    with torch.inference_mode():
        expected = decoder(ids, last_only=False, piece=None)
    pieces.clear()
    stepper = Stepper(decoder, None, chunk=4)
    _assert_exact(stepper.feed(ids[:, :9]), expected[:, 8])
    _assert_exact(stepper.feed_each(ids[:, 9:12]), expected[:, 9:12])
    assert pieces == [4, 4]


def test_only_new_ids_go_through_the_head(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder, real = random_decoder(), Decoder.unembed
    sizes: list[int] = []

    def unembed(self: Decoder, x: Tensor) -> Tensor:
        sizes.append(x.shape[1])
        return real(self, x)

    monkeypatch.setattr(Decoder, "unembed", unembed)
    ids, stepper = ids_for(decoder.spec), Stepper(decoder, None)
    stepper.feed(ids[:, :9])
    stepper.feed_each(ids[:, 9:12])
    assert sizes == [1, 3]
