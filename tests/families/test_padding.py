"""A4: each row of a left-padded batch is its own single run, in float64, for every family."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

import torch
from torch import Tensor

from llmcli.cache import LOSSY, CacheKind, FullStore, KVCache, RingStore, make_cache
from llmcli.generation.stepper import Stepper
from llmcli.model import Decoder
from tests.cache.poison import POISON
from tests.families.conftest import MakeOracle
from tests.families.rows import ROWS
from tests.families.turns import turns
from tests.oracle import Row

EXACT = 1e-9
# With windows, of 8 at most, a row of 1 goes beyond one, and the last padding leaves a ring.
NEW, NEW_OF_WINDOWS = 3, 8

# A lossy cache packs by slot, so that padding moves what is packed when.
KINDS = [kind for kind in get_args(CacheKind) if kind not in LOSSY]
# Lengths of the rows, and how many tokens are fed at once.
SHAPES = [((1, 7, 19), 1000), ((19, 1, 7), 4)]


def _own(decoder: Decoder) -> dict[int, Tensor]:
    """Ids by the length of their prompt, which others follow."""
    generator = torch.Generator().manual_seed(3)
    vocab = decoder.spec.vocab_size
    return {
        n: torch.randint(vocab, (n + NEW_OF_WINDOWS,), generator=generator)
        for n in sorted(SHAPES[0][0])
    }


def _batch(
    decoder: Decoder, own: dict[int, Tensor], lengths: tuple[int, ...]
) -> tuple[Tensor, Tensor]:
    """Padded prompts [B,T] and their pads [B]."""
    generator = torch.Generator().manual_seed(4)
    longest = max(lengths)
    padded = torch.randint(decoder.spec.vocab_size, (len(lengths), longest), generator=generator)
    for line, length in zip(padded, lengths, strict=True):
        line[longest - length :] = own[length][:length]
    return padded, longest - torch.tensor(lengths)


def _poison_pads(cache: KVCache, pads: Tensor) -> int:
    """Fill the slots in front of each row; returns how many there were."""
    filled = 0
    with torch.inference_mode():
        for store in cache.stores:
            assert isinstance(store, FullStore | RingStore)
            window = store.window if isinstance(store, RingStore) else cache.length
            for line, pad in enumerate(pads.tolist()):
                slots = [at % window for at in range(max(0, cache.length - window), pad)]
                for held in (store.buffer.keys, store.buffer.values):
                    assert held is not None
                    held[line, :, slots] = POISON
                filled += len(slots)
    return filled


@torch.inference_mode()
def _single(decoder: Decoder, ids: Tensor) -> Tensor:
    logits: Tensor = decoder(ids[None], last_only=False)[0]
    assert logits.dtype == torch.float64
    return logits


@turns(
    "ways",
    [("none", *SHAPES[0]), ("none", *SHAPES[1]), ("growing", *SHAPES[0]), ("ring", *SHAPES[0])],
    always=[("growing", *SHAPES[1]), ("ring", *SHAPES[1])],
    standing=[
        *((kind, *SHAPES[1]) for kind in KINDS),
        *((kind, *SHAPES[0]) for kind in ("growing", "ring")),
    ],
)
def test_each_row_is_its_single_run(
    row: Row, ways: Sequence[tuple[CacheKind, tuple[int, ...], int]], oracle: MakeOracle
) -> None:
    decoder = oracle(row).exact
    spec = decoder.spec
    if not spec.can_pad:
        return
    own = _own(decoder)
    alone = {length: _single(decoder, ids) for length, ids in own.items()}
    for kind, lengths, chunk in ways:
        if kind != "ring" or spec.windowed:
            _assert_single_runs(decoder, own, alone, kind=kind, lengths=lengths, chunk=chunk)


def _assert_single_runs(
    decoder: Decoder,
    own: dict[int, Tensor],
    alone: dict[int, Tensor],
    *,
    kind: CacheKind,
    lengths: tuple[int, ...],
    chunk: int,
) -> None:
    prompts, pads = _batch(decoder, own, lengths)
    cache = make_cache(kind, decoder.spec)
    stepper = Stepper(decoder, cache, chunk=chunk, pads=pads)
    new = prompts
    steps = NEW_OF_WINDOWS if decoder.spec.windowed else NEW
    for step in range(steps + 1):
        got = stepper.feed(new)
        assert got.isfinite().all()
        for line, length in enumerate(lengths):
            want = alone[length][length - 1 + step]
            assert (got[line] - want).abs().max() <= EXACT, (kind, lengths, chunk, step, length)
        if step == 0 and cache is not None:
            assert _poison_pads(cache, pads)
        if step < steps:
            new = torch.stack([own[n][n + step] for n in lengths])[:, None]


def test_what_cannot_be_padded_is_named(oracle: MakeOracle) -> None:
    """A state, and tables that depend on the length; nothing else."""
    cannot = {row.name for row in ROWS if not oracle(row).loaded.spec.can_pad}
    assert {name.split("-")[0] for name in cannot} <= {"qwen3_next", "phi3", "llama"}, cannot
    assert "llama-rope-dynamic" in cannot
