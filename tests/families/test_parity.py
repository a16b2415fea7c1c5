"""Every row against transformers on the same folder: whole, step by step, in pieces, greedy."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from itertools import chain, product
from typing import get_args

import pytest
import torch
from torch import Tensor

from llmcli.cache import CacheKind, make_cache
from llmcli.checkpoint.directory import ModelDir
from llmcli.engine.load import load_decoder
from llmcli.families import FAMILIES
from llmcli.generation.params import SamplingParams
from llmcli.generation.stepper import Stepper
from llmcli.generation.stop import StopRule
from llmcli.generation.strategies import make_strategy
from llmcli.spec import DecoderSpec
from tests.families.conftest import MakeOracle
from tests.families.rows import ROWS
from tests.families.turns import in_turns, turns
from tests.oracle import NEW, PROMPT, Row, assert_close, write_hub_dialect

rows = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
# Neither of the quantised ones packs anything in so short a text, so one stands for both.
KINDS = [kind for kind in get_args(CacheKind) if kind != "quantized-8"]
# What a run takes by itself, with windows and without; the others take turns.
OWN: tuple[CacheKind, ...] = ("growing", "ring")
OTHERS = [kind for kind in KINDS if kind not in OWN]

# Ids fed one by one, before and after a longer piece; a window is 8 at most.
STEPS, STEPS_OF_WINDOWS = 3, 8
# Ids fed in pieces: beyond three windows of 8, and not a multiple of any piece.
PIECES = 28
# In bfloat16 (8 bits) our root mean square error against float32 is about that of transformers.
BFLOAT16_SHARE = 1.25


def test_every_model_type_has_a_row_and_every_family_one_in_bfloat16() -> None:
    types = {row.model_type() for row in ROWS}
    assert types == set(chain.from_iterable(family.model_types for family in FAMILIES))
    in_bfloat16 = {row.model_type() for row in ROWS if row.bfloat16}
    assert all(in_bfloat16 & set(family.model_types) for family in FAMILIES)


@rows
def test_whole_forward(row: Row, oracle: MakeOracle) -> None:
    theirs = oracle(row)
    loaded = theirs.loaded
    # A warning here would name a key of the family's own config that nothing reads.
    assert loaded.warnings == ()
    with torch.inference_mode():
        ours = loaded.decoder(theirs.ids, last_only=False)[0]
    assert ours.dtype == torch.float32
    assert_close(ours, theirs.logits)


@rows
def test_hub_dialect_reads_alike(row: Row, oracle: MakeOracle, tmp_path) -> None:
    theirs = oracle(row)
    shutil.copytree(theirs.folder, tmp_path / "hub")
    write_hub_dialect(tmp_path / "hub")
    loaded = load_decoder(ModelDir.open(tmp_path / "hub"), device="cpu", dtype="float32")
    assert loaded.spec == theirs.loaded.spec
    assert loaded.warnings == ()
    with torch.inference_mode():
        assert_close(loaded.decoder(theirs.ids, last_only=False)[0], theirs.logits)


@in_turns("kind", OTHERS, always=OWN, standing=KINDS)
def test_prefill_then_one_by_one(row: Row, kind: CacheKind, oracle: MakeOracle) -> None:
    theirs = oracle(row)
    expected = theirs.logits
    decoder = theirs.loaded.decoder
    if _tried_already(decoder.spec, kind):
        return
    stepper = Stepper(decoder, make_cache(kind, decoder.spec), planned=row.tokens)
    steps = [1] * (STEPS_OF_WINDOWS if decoder.spec.windowed else STEPS)
    sizes = [PROMPT, *steps, row.tokens - PROMPT - 2 * len(steps), *steps]
    got = [stepper.feed(piece) for piece in theirs.ids.split(sizes, dim=1)]
    assert_close(torch.cat(got), expected[torch.tensor(sizes).cumsum(0) - 1])


@turns(
    "ways",
    list(product(KINDS, (3, 1000))),
    always=list(product(OWN, (5,))),
    standing=[*product(KINDS, (5,)), *product(OWN, (1000,))],
)
def test_prefill_in_chunks(
    row: Row, ways: Sequence[tuple[CacheKind, int]], oracle: MakeOracle
) -> None:
    theirs = oracle(row)
    decoder = theirs.loaded.decoder
    for kind, chunk in ways:
        if _tried_already(decoder.spec, kind):
            continue
        cache = make_cache(kind, decoder.spec)
        stepper = Stepper(decoder, cache, planned=row.tokens, chunk=chunk)
        got = stepper.feed(theirs.ids[:, :PIECES])[0]
        assert_close(got, theirs.logits[PIECES - 1], of=f"{kind}, {chunk} at once: ")


# The loop knows nothing of a row; every row's logits are compared above, step by step.
@pytest.mark.parametrize("kind", ["none", *OWN])
@pytest.mark.parametrize("row", [row for row in ROWS if row.bfloat16], ids=lambda row: row.name)
def test_greedy_is_generate(row: Row, kind: CacheKind, oracle: MakeOracle) -> None:
    theirs = oracle(row)
    prompt = theirs.ids[:, :PROMPT]
    decoder = theirs.loaded.decoder
    if _tried_already(decoder.spec, kind):
        return
    stepper = Stepper(decoder, make_cache(kind, decoder.spec), planned=PROMPT + NEW)
    stop = StopRule(frozenset(), NEW, decoder.spec.max_positions - PROMPT)
    tokens = list(make_strategy("greedy", SamplingParams()).run(stepper, prompt[0].tolist(), stop))
    assert [token.id for token in tokens] == theirs.greedy
    assert tokens[-1].finish_reason == "length"


@pytest.mark.parametrize("row", [row for row in ROWS if row.bfloat16], ids=lambda row: row.name)
def test_bfloat16(row: Row, oracle: MakeOracle, tmp_path) -> None:
    theirs = oracle(row)
    exact = theirs.logits
    model = type(theirs.model).from_pretrained(
        theirs.folder, dtype=torch.bfloat16, attn_implementation="eager"
    )
    model.save_pretrained(tmp_path / "half")
    loaded = load_decoder(ModelDir.open(tmp_path / "half"), device="cpu", dtype="bfloat16")
    with torch.inference_mode():
        theirs_half = model(theirs.ids).logits[0]
        ours_half = loaded.decoder(theirs.ids, last_only=False)[0]
    assert ours_half.dtype == theirs_half.dtype == torch.bfloat16
    assert _rms(ours_half - exact) <= BFLOAT16_SHARE * _rms(theirs_half - exact)


def _tried_already(spec: DecoderSpec, kind: CacheKind) -> bool:
    """Where no layer has a window, a ring cache is a growing one, store by store."""
    if kind != "ring" or spec.windowed:
        return False
    ring, growing = make_cache("ring", spec), make_cache("growing", spec)
    assert ring is not None
    assert growing is not None
    assert [type(store) for store in ring.stores] == [type(store) for store in growing.stores]
    return True


def _rms(difference: Tensor) -> float:
    return difference.float().square().mean().sqrt().item()
