"""Captured steps, played from a tape, against ordinary ones, in float64."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from llmcli.cache import CacheKind, KVCache, make_cache
from llmcli.generation.limit import Limit
from llmcli.generation.stepper import Stepper
from llmcli.model import Decoder
from llmcli.model.packed import pack_int4, pack_int8
from llmcli.spec import Alibi, DecoderSpec, matrices
from llmcli.spec.cache_size import cache_bytes
from tests.cache.poison import POISONERS
from tests.tape import Recorder
from tests.tiny import random_decoder, random_parameters, tiny_spec

EXACT = 1e-9
KINDS: tuple[CacheKind, ...] = ("growing", "ring", "static")


def _windowed(*windows: int | None, **changes: object) -> DecoderSpec:
    spec = tiny_spec(max_position_embeddings=1024)
    (layer, *_) = spec.layers
    layers = tuple(replace(layer, window=window) for window in windows)
    return replace(spec, layers=layers, **changes)


SPECS = {
    "full": _windowed(None),
    "window": _windowed(300, None),
    "small windows": _windowed(8, 1),
    "alibi": _windowed(7, None, positions=Alibi()),
    "capped": _windowed(None, attn_softcap=5.0),
}


def _ids(count: int, rows: int = 1, *, seed: int = 1) -> Tensor:
    return torch.randint(320, (rows, count), generator=torch.Generator().manual_seed(seed))


def _captured(spec: DecoderSpec) -> tuple[Decoder, Recorder]:
    decoder, recorder = random_decoder(spec), Recorder()
    decoder.capture(recorder)
    return decoder, recorder


@torch.inference_mode()
def _expected(decoder: Decoder, ids: Tensor) -> Tensor:
    """Logits [B,T,V] in one pass without a cache."""
    return decoder(ids, last_only=False)


def _cache(kind: CacheKind, decoder: Decoder, planned: int = 0) -> KVCache:
    cache = make_cache(kind, decoder.spec, planned=planned)
    assert cache is not None
    return cache


def _assert_steps(stepper: Stepper, ids: Tensor, start: int, expected: Tensor) -> None:
    """Each id from `start` on, fed by itself, gives the logits expected behind it."""
    for at in range(start, ids.shape[1]):
        got = stepper.feed(ids[:, at : at + 1])
        assert (got - expected[:, at]).abs().max() <= EXACT, at


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("kind", KINDS)
def test_steps_over_all_that_grows(name: str, kind: CacheKind) -> None:
    """256 is the first stretch and the growing step, 300 a window, 512 the first rotary table."""
    decoder, recorder = _captured(SPECS[name])
    ids = _ids(520)
    expected = _expected(decoder, ids)
    cache = _cache(kind, decoder, planned=515)
    stepper = Stepper(decoder, cache)
    for start, stop in ((250, 262), (296, 305), (508, 520)):
        stepper.feed(ids[:, stepper.ids.shape[1] : start])
        POISONERS[kind](cache)
        _assert_steps(stepper, ids[:, :stop], start, expected)
    # Of 33 steps two are run as they are first, and one or two more at each new stretch.
    assert recorder.recorded >= 1
    assert recorder.played >= 24


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("length", "planned"), [(520, 529), (254, 530), (510, 769), (254, 271)])
def test_a_run_takes_no_more_memory_than_it_is_said_to(
    kind: CacheKind, length: int, planned: int
) -> None:
    decoder, recorder = _captured(SPECS["window"])
    ids = _ids(length + 8)
    cache = _cache(kind, decoder, planned)
    stepper = Stepper(decoder, cache, planned=planned)
    stepper.feed(ids[:, :length])
    _assert_steps(stepper, ids, length, _expected(decoder, ids))
    assert recorder.played
    most = cache_bytes(kind, decoder.spec, [planned - 1], element_bytes=8, planned=planned)
    assert cache.nbytes <= most


def test_a_run_that_reaches_further_than_it_planned_goes_on() -> None:
    decoder, _ = _captured(SPECS["full"])
    ids = _ids(520)
    cache = _cache("growing", decoder)
    stepper = Stepper(decoder, cache, planned=252)
    for start, stop in ((250, 262), (508, 520)):
        stepper.feed(ids[:, stepper.ids.shape[1] : start])
        _assert_steps(stepper, ids[:, :stop], start, _expected(decoder, ids))
    assert cache.nbytes == cache_bytes("growing", decoder.spec, [520], element_bytes=8)


def test_what_a_rewound_token_left_is_not_seen_even_if_it_is_no_number() -> None:
    decoder, recorder = _captured(SPECS["window"])
    ids = _ids(40)
    expected = _expected(decoder, ids)
    cache = _cache("growing", decoder)
    stepper = Stepper(decoder, cache)
    stepper.feed(ids[:, :20])
    _assert_steps(stepper, ids[:, :30], 20, expected)
    stepper.rewind(12)
    with torch.inference_mode():
        for held in cache.memory:
            held[:, :, cache.length :] = float("nan")
    _assert_steps(stepper, ids, 18, expected)
    assert recorder.recorded == 1


def test_several_ids_at_once_go_between_steps() -> None:
    decoder, recorder = _captured(SPECS["full"])
    ids = _ids(300)
    expected = _expected(decoder, ids)
    stepper = Stepper(decoder, _cache("growing", decoder))
    stepper.feed(ids[:, :250])
    _assert_steps(stepper, ids[:, :255], 250, expected)
    # The memory grows behind the capture's back, and the length comes back to where it was.
    stepper.feed(_ids(5, seed=2))
    stepper.rewind(5)
    _assert_steps(stepper, ids, 255, expected)
    assert recorder.recorded == 2


@pytest.mark.parametrize("order", [[2, 0], [1, 1, 0, 2]])
def test_reordered_rows(order: list[int]) -> None:
    decoder, _ = _captured(SPECS["window"])
    ids, more = _ids(23, rows=3), _ids(4, rows=len(order), seed=2)
    stepper = Stepper(decoder, _cache("ring", decoder))
    stepper.feed(ids[:, :20])
    _assert_steps(stepper, ids, 20, _expected(decoder, ids))
    stepper.reorder(torch.tensor(order))
    whole = torch.cat((ids[order], more), 1)
    _assert_steps(stepper, whole, 23, _expected(decoder, whole))


def test_rows_that_change_at_each_step_are_never_recorded() -> None:
    decoder, recorder = _captured(SPECS["full"])
    ids = _ids(30, rows=2)
    stepper = Stepper(decoder, _cache("growing", decoder))
    stepper.feed(ids[:, :20])
    for stop in range(21, 31):
        _assert_steps(stepper, ids[:, :stop], stop - 1, _expected(decoder, ids))
        stepper.reorder(torch.tensor([1, 0]))
        ids = ids.flip(0)
    assert recorder.recorded == 0


@pytest.mark.parametrize("name", SPECS)
def test_rows_that_are_filled_up_in_front(name: str) -> None:
    decoder, recorder = _captured(SPECS[name])
    ids, pads = _ids(30, rows=2), [6, 0]
    padded = ids.clone()
    padded[0, :6] = ids[0, 6]
    stepper = Stepper(decoder, _cache("ring", decoder), pads=torch.tensor(pads))
    stepper.feed(padded[:, :20])
    for at in range(20, 30):
        got = stepper.feed(padded[:, at : at + 1])
        for row, pad in enumerate(pads):
            alone = _expected(decoder, ids[row : row + 1, pad : at + 1])[0, -1]
            assert (got[row] - alone).abs().max() <= EXACT
    assert recorder.played == 8


def test_a_fork_has_its_own_memory_and_captures() -> None:
    decoder, recorder = _captured(SPECS["full"])
    ids, other = _ids(30), _ids(30)
    other[:, 23:] += 1
    cache = _cache("growing", decoder)
    left = Stepper(decoder, cache)
    left.feed(ids[:, :20])
    _assert_steps(left, ids[:, :23], 20, _expected(decoder, ids))
    right = Stepper(decoder, cache.fork())
    right.ids = left.ids
    for stop in range(24, 31):
        _assert_steps(left, ids[:, :stop], stop - 1, _expected(decoder, ids))
        _assert_steps(right, other[:, :stop], stop - 1, _expected(decoder, other))
    assert recorder.recorded == 2


def test_dropped_tokens_leave_the_rest_where_it_is_expected() -> None:
    taped, _ = _captured(SPECS["full"])
    plain = random_decoder(SPECS["full"])
    ids = _ids(60)
    one, two = (Stepper(d, _cache("growing", d), limit=Limit(24)) for d in (taped, plain))
    for piece in ids.split([20, *[1] * 40], dim=1):
        assert (one.feed(piece) - two.feed(piece)).abs().max() <= EXACT
    assert one.cache is not None
    assert one.cache.dropped


@pytest.mark.parametrize("kind", ["offloaded", "quantized-8", "quantized-4", "none"])
def test_other_caches_take_ordinary_steps(kind: CacheKind) -> None:
    taped, recorder = _captured(SPECS["window"])
    plain = random_decoder(SPECS["window"])
    one, two = (Stepper(d, make_cache(kind, d.spec)) for d in (taped, plain))
    for piece in _ids(30).split([20, *[1] * 10], dim=1):
        assert torch.equal(one.feed(piece), two.feed(piece))
    assert recorder.recorded == 0


def test_a_watched_decoder_runs_its_modules_and_a_cleared_cache_gives_its_memory_back() -> None:
    decoder, recorder = _captured(SPECS["full"])
    ids = _ids(30)
    cache = _cache("growing", decoder)
    stepper = Stepper(decoder, cache)
    stepper.feed(ids[:, :20])
    with decoder.watched():
        _assert_steps(stepper, ids[:, :25], 20, _expected(decoder, ids))
        assert recorder.recorded == 0
    _assert_steps(stepper, ids, 25, _expected(decoder, ids))
    assert recorder.recorded == 1
    assert cache.capture is not None
    cache.clear()
    assert cache.capture is None


@pytest.mark.parametrize("held", ["bfloat16", "int8", "int4"])
def test_narrow_and_packed_weights(held: str) -> None:
    spec = SPECS["window"]
    packs = {"int8": lambda w: pack_int8(w, 32), "int4": lambda w: pack_int4(w, 32)}
    pack = packs.get(held, lambda w: w.bfloat16())
    drawn = random_parameters(spec)
    parameters = {n: pack(one) if n in matrices(spec) else one for n, one in drawn.items()}
    plain, taped = (
        Decoder.filled(spec, parameters.items(), dtype=torch.float32).eval() for _ in range(2)
    )
    taped.capture(recorder := Recorder())
    one, two = (Stepper(d, _cache("ring", d)) for d in (plain, taped))
    for piece in _ids(40).split([30, *[1] * 10], dim=1):
        torch.testing.assert_close(one.feed(piece), two.feed(piece), rtol=1e-4, atol=1e-4)
    assert recorder.played == 8
