"""Bytes by formula are the bytes held, for every kind of cache and every family."""

from __future__ import annotations

from typing import get_args

import pytest
import torch

from llmcli.cache import CacheKind, make_cache
from llmcli.cache.size import cache_bytes
from tests.insight.decoders import ALL, decoder_of, ids_for
from tests.oracle import Row

PIECES = (20, 1, 1, 3)


@pytest.mark.parametrize("row", ALL, ids=lambda row: row.name)
def test_the_formula_says_what_is_held(row: Row) -> None:
    decoder = decoder_of(row)
    for kind in get_args(CacheKind):
        cache = make_cache(kind, decoder.spec, planned=30)
        with torch.inference_mode():
            for count in PIECES:
                decoder(ids_for(decoder.spec, count), cache)
        held = cache.nbytes if cache is not None else 0
        told = cache_bytes(kind, decoder.spec, PIECES, element_bytes=8, planned=30)
        assert (kind, told) == (kind, held)
        two = cache_bytes(kind, decoder.spec, PIECES, element_bytes=8, planned=30, rows=2)
        assert two == 2 * told
