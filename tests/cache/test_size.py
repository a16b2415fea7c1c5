"""Bytes by formula are the bytes held, for every kind of cache and every family."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

import torch

from llmcli.cache import CacheKind, make_cache
from llmcli.model import Decoder
from llmcli.spec.cache_size import cache_bytes
from tests.families.turns import turns
from tests.insight.decoders import decoder_of, ids_for
from tests.oracle import Row

PIECES = (20, 1, 1, 3)
KINDS = get_args(CacheKind)
OWN: tuple[CacheKind, ...] = ("growing", "ring")


@turns("kinds", [kind for kind in KINDS if kind not in OWN], always=OWN, standing=KINDS)
def test_the_formula_says_what_is_held(row: Row, kinds: Sequence[CacheKind]) -> None:
    for kind in kinds:
        _assert_held(decoder_of(row), kind)


def _assert_held(decoder: Decoder, kind: CacheKind) -> None:
    cache = make_cache(kind, decoder.spec, planned=30)
    held = 0
    if cache is not None:
        with torch.inference_mode():
            for count in PIECES:
                decoder(ids_for(decoder.spec, count), cache)
        held = cache.nbytes
    told = cache_bytes(kind, decoder.spec, PIECES, element_bytes=8, planned=30)
    assert told == held, kind
    two = cache_bytes(kind, decoder.spec, PIECES, element_bytes=8, planned=30, rows=2)
    assert two == 2 * told, kind
