"""Rows of a batch: each is its single run, whatever its neighbours, their order and their ends."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

import pytest
import torch

from llmcli.cache import LOSSY, CacheKind, make_cache
from llmcli.errors import GenerationError
from llmcli.generation.batch import Batch, BatchRow
from llmcli.generation.params import SamplingParams
from llmcli.generation.stepper import Stepper
from llmcli.generation.stop import StopRule
from llmcli.generation.strategies import StrategyOptions, make_strategy
from llmcli.generation.token import Token
from llmcli.model import Decoder
from llmcli.spec import DecoderSpec
from tests.generation.test_matrix import SHAPED
from tests.tiny import random_decoder, small_spec

VOCAB = 40
KINDS = [kind for kind in get_args(CacheKind) if kind not in LOSSY]
kinds = pytest.mark.parametrize("kind", KINDS)

PARAMS = {
    "greedy": SamplingParams(temperature=0.0),
    "greedy, penalties": SamplingParams(
        temperature=0.0, repetition_penalty=1.3, repetition_last=6, presence_penalty=0.4,
        frequency_penalty=0.3, no_repeat_ngram=2, dry_multiplier=0.8, min_new_tokens=3,
    ),
    "sample": SamplingParams(temperature=1.4),
    "sample, every processor": SamplingParams(**SHAPED),
    "mirostat": SamplingParams(mirostat_tau=3.0),
}  # fmt: skip


def _windowed() -> DecoderSpec:
    spec = small_spec(VOCAB)
    (layer,) = spec.layers
    return replace(spec, layers=(replace(layer, window=6), layer))


@pytest.fixture(scope="module")
def decoder() -> Decoder:
    return random_decoder(_windowed(), seed=22, dtype=torch.float64)


def _rows(params: SamplingParams) -> list[BatchRow]:
    """Prompts of 1, 7, 19 and again 7 tokens, with seeds, budgets and rooms of their own."""
    generator = torch.Generator().manual_seed(2)
    stop_ids = frozenset({3, 11})
    found = []
    for at, (length, new, room) in enumerate([(1, 12, 99), (7, 5, 99), (19, 14, 9), (7, 12, 99)]):
        ids = tuple(torch.randint(VOCAB, (length,), generator=generator).tolist())
        stop = StopRule(stop_ids if at else frozenset(), new, room)
        found.append(BatchRow(prompt_ids=ids, params=replace(params, seed=50 + at), stop=stop))
    return found


def _alone(decoder: Decoder, row: BatchRow, kind: CacheKind) -> list[Token]:
    strategy = make_strategy("sample", row.params, StrategyOptions(line_break_ids=frozenset({5})))
    stepper = Stepper(decoder, make_cache(kind, decoder.spec))
    return list(strategy.run(stepper, row.prompt_ids, row.stop))


def _together(
    decoder: Decoder, rows: list[BatchRow], kind: CacheKind = "growing", **how: Any
) -> list[list[Any]]:
    stepper = Stepper(decoder, make_cache(kind, decoder.spec), **how)
    batch = Batch(stepper, rows, sampling=True, line_break_ids={5})
    found: list[list[Any]] = [[] for _ in rows]
    while not batch.done:
        for row, token in batch.step():
            found[row].append(token)
    assert batch.step() == []
    return found


def _assert_same(got: list[Token], expected: list[Token]) -> None:
    assert [token.id for token in got] == [token.id for token in expected]
    assert [token.finish_reason for token in got] == [token.finish_reason for token in expected]
    for one, other in zip(got, expected, strict=True):
        assert one.logprob == pytest.approx(other.logprob, abs=1e-9)


# What edits logits knows no cache, so each of them meets one kind, and each kind one of them.
@pytest.mark.parametrize(
    ("kind", "params"),
    [
        *(("ring", name) for name in PARAMS),
        *((kind, "sample, every processor") for kind in KINDS if kind != "ring"),
    ],
)
def test_each_row_is_its_single_run(decoder: Decoder, kind: CacheKind, params: str) -> None:
    rows = _rows(PARAMS[params])
    expected = [_alone(decoder, row, "none") for row in rows]
    assert len({len(tokens) for tokens in expected}) > 2, "rows should end at different steps"
    for order in ([0, 1, 2, 3], [3, 2, 1, 0], [2, 0], [1, 3], [0]):
        got = _together(decoder, [rows[at] for at in order], kind, chunk=5)
        for tokens, at in zip(got, order, strict=True):
            _assert_same(tokens, expected[at])


def test_penalties_matter_here(decoder: Decoder) -> None:
    plain, shaped = (
        [_alone(decoder, row, "none") for row in _rows(PARAMS[name])]
        for name in ("greedy", "greedy, penalties")
    )
    assert plain != shaped


def test_rows_that_end_leave(decoder: Decoder, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    real = Stepper.feed

    def feed(self: Stepper, new: torch.Tensor) -> torch.Tensor:
        sizes.append(new.shape[0])
        return real(self, new)

    monkeypatch.setattr(Stepper, "feed", feed)
    rows = [replace(row, stop=StopRule(frozenset(), 1 + at, 99)) for at, row in
            enumerate(_rows(PARAMS["greedy"]))]  # fmt: skip
    assert [len(tokens) for tokens in _together(decoder, rows)] == [1, 2, 3, 4]
    assert sizes == [4, 3, 2, 1]


def test_a_row_that_is_dropped_costs_nothing_more(decoder: Decoder) -> None:
    rows = _rows(PARAMS["greedy"])
    stepper = Stepper(decoder, make_cache("growing", decoder.spec))
    batch = Batch(stepper, rows, sampling=False)
    batch.drop(1)
    assert [row for row, _ in batch.step()] == [0, 2, 3]
    batch.drop(0)
    assert [row for row, _ in batch.step()] == [2, 3]
    assert stepper.ids.shape[0] == 2


@kinds
def test_equal_prompts_are_computed_once(decoder: Decoder, kind: CacheKind) -> None:
    (first, *_, last) = _rows(PARAMS["sample"])
    samples = [replace(last, params=replace(last.params, seed=seed)) for seed in (1, 2, 3)]
    widths: list[tuple[int, ...]] = []
    hook = decoder.embed_tokens.register_forward_hook(
        lambda _module, inputs, _out: widths.append(tuple(inputs[0].shape))
    )
    got = _together(decoder, [*samples, first, samples[0]], kind)
    hook.remove()
    assert widths[0] == (2, 7)
    for tokens, row in zip(got, [*samples, first, samples[0]], strict=True):
        _assert_same(tokens, _alone(decoder, row, kind))


def test_one_broken_row_fails_alone(decoder: Decoder) -> None:
    broken = random_decoder(_windowed(), seed=22, dtype=torch.float64)
    rows = _rows(PARAMS["sample, every processor"])
    bad = next(id_ for id_ in rows[2].prompt_ids if all(
        id_ not in (*row.prompt_ids, *(token.id for token in _alone(decoder, row, "none")))
        for row in (rows[0], rows[1], rows[3])
    ))  # fmt: skip
    broken.embed_tokens.weight[bad] = float("nan")
    got = _together(broken, rows)
    (error,) = got[2]
    assert isinstance(error, GenerationError)
    assert "new token 1 are not finite in float64" in error.message
    assert "embed_tokens" in error.message
    for at in (0, 1, 3):
        _assert_same(got[at], _alone(decoder, rows[at], "none"))


def test_a_row_that_breaks_later_names_the_token(decoder: Decoder) -> None:
    broken = random_decoder(_windowed(), seed=22, dtype=torch.float64)
    rows = [replace(row, stop=StopRule(frozenset(), 6, 99)) for row in _rows(PARAMS["sample"])]
    said = [[token.id for token in _alone(decoder, row, "none")] for row in rows]
    at, bad = next((at, id_) for at in range(1, 5) for id_ in [said[0][at]]
                   if all(id_ not in (*ids, *row.prompt_ids)
                          for ids, row in zip(said[1:], rows[1:], strict=True))
                   and id_ not in said[0][:at])  # fmt: skip
    broken.embed_tokens.weight[bad] = float("nan")
    got = _together(broken, rows)
    assert [token.id for token in got[0][:-1]] == said[0][: at + 1]
    assert f"new token {at + 2} " in got[0][-1].message
    assert [[token.id for token in tokens] for tokens in got[1:]] == said[1:]
