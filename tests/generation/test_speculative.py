"""Speculative decoding: greedy id for id, sampled in the decoder's own distribution."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch

from llmcli.cache import make_cache
from llmcli.generation.params import SamplingParams
from llmcli.generation.stepper import Stepper
from llmcli.generation.stop import StopRule
from llmcli.generation.strategies.base import StrategyOptions
from llmcli.generation.strategies.proposers import DraftModel, PromptLookup, Proposer
from llmcli.generation.strategies.sequential import Greedy
from llmcli.generation.strategies.speculative import Speculative
from llmcli.generation.token import Token
from llmcli.model import Decoder
from tests.tiny import random_decoder, small_spec

VOCAB = 6
PROMPT = [1, 2, 3, 1, 2]
kinds = pytest.mark.parametrize("kind", ["growing", "none"])
proposers = pytest.mark.parametrize("proposer", ["lookup", "draft", "itself"])


@pytest.fixture(scope="module")
def decoder() -> Decoder:
    return random_decoder(small_spec(VOCAB), seed=1, dtype=torch.float64)


@cache
def _other() -> Decoder:
    return random_decoder(small_spec(VOCAB), seed=2, dtype=torch.float64)


def _proposer(name: str, decoder: Decoder, kind: Any = "growing") -> Proposer:
    if name == "lookup":
        return PromptLookup()
    draft = decoder if name == "itself" else _other()
    return DraftModel(Stepper(draft, make_cache(kind, draft.spec)))


def _run(
    decoder: Decoder,
    proposer: Proposer,
    *,
    kind: Any = "growing",
    new: int = 30,
    stop: frozenset[int] = frozenset(),
    params: SamplingParams | None = None,
    sampling: bool = False,
    draft: int = 4,
) -> tuple[list[Token], Speculative]:
    options = StrategyOptions(sampling=sampling, num_draft_tokens=draft)
    strategy = Speculative(params or SamplingParams(), options, proposer)
    stepper = Stepper(decoder, make_cache(kind, decoder.spec))
    return list(strategy.run(stepper, PROMPT, StopRule(stop, new, 100))), strategy


@kinds
@proposers
@pytest.mark.parametrize("draft", [1, 4, 9])
def test_greedy_is_identical(decoder: Decoder, proposer: str, kind: Any, draft: int) -> None:
    stepper = Stepper(decoder, make_cache(kind, decoder.spec))
    plain = list(
        Greedy(SamplingParams(), StrategyOptions()).run(
            stepper, PROMPT, StopRule(frozenset(), 30, 100)
        )
    )
    got, _ = _run(decoder, _proposer(proposer, decoder, kind), kind=kind, draft=draft)
    assert [one.id for one in got] == [one.id for one in plain]
    assert [one.logprob for one in got] == pytest.approx([one.logprob for one in plain], abs=1e-9)
    assert got[-1].finish_reason == "length"


def test_a_draft_that_is_the_decoder_itself_is_always_right(decoder: Decoder) -> None:
    _, strategy = _run(decoder, _proposer("itself", decoder), new=31, draft=4)
    assert strategy.acceptance.rate == 1.0
    # The prompt, then five tokens a forward.
    assert strategy.acceptance.forwards == 1 + 6


@proposers
def test_stops_inside_a_run_of_guesses(decoder: Decoder, proposer: str) -> None:
    plain, _ = _run(decoder, PromptLookup())
    stop = frozenset({plain[7].id})
    expected = next(at for at, one in enumerate(plain) if one.id in stop)
    got, _ = _run(decoder, _proposer(proposer, decoder), stop=stop)
    assert [one.id for one in got] == [one.id for one in plain[: expected + 1]]
    assert got[-1].finish_reason == "stop"


@pytest.mark.parametrize("new", [0, 1, 2, 7])
def test_never_more_than_the_budget(decoder: Decoder, new: int) -> None:
    got, _ = _run(decoder, _proposer("itself", decoder), new=new, draft=5)
    assert len(got) == new


@proposers
def test_sampled_text_follows_the_decoders_own_distribution(
    decoder: Decoder, proposer: str
) -> None:
    """Chi-square over all pairs of the first two new ids, 36 cells."""
    runs = 500
    with torch.inference_mode():
        first = decoder(torch.tensor([PROMPT]))[0, -1].softmax(-1)
        rows = torch.tensor([[*PROMPT, id_] for id_ in range(VOCAB)])
        second = decoder(rows)[:, -1].softmax(-1)
    expected = (first[:, None] * second).flatten() * runs
    counts = torch.zeros(VOCAB * VOCAB, dtype=torch.float64)
    for seed in range(runs):
        got, _ = _run(
            decoder,
            _proposer(proposer, decoder),
            new=2,
            params=SamplingParams(seed=seed),
            sampling=True,
            draft=3,
        )
        counts[got[0].id * VOCAB + got[1].id] += 1
    cells = expected > 5
    rest = counts[~cells].sum() - expected[~cells].sum()
    statistic = ((counts - expected).square() / expected)[cells].sum().item()
    degrees = int(cells.sum()) - 1
    # Mean and three standard deviations of a chi-square.
    assert statistic < degrees + 3 * (2 * degrees) ** 0.5
    assert abs(rest.item()) < 5 * max(1.0, expected[~cells].sum().item()) ** 0.5


def _as_it_is(_ids: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
    return logits


def test_lookup_finds_the_latest_longest_repetition() -> None:
    lookup = PromptLookup(longest=3)

    def ids(*given: int) -> list[int]:
        return [guess.id for guess in lookup.propose(list(given), 2, _as_it_is, None)]

    assert ids(1, 2, 3, 9, 1, 2, 3) == [9, 1]
    assert ids(1, 2, 7, 8, 5, 2, 6, 4, 1, 2) == [7, 8]
    assert ids(2, 5, 2, 6, 2) == []
    assert ids(1, 2, 3) == []
    assert ids(1) == []


def test_the_index_of_a_text_that_was_cut_back_is_made_anew() -> None:
    """Whatever was asked before, the answer is that of a fresh proposer."""
    kept = PromptLookup()
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(4, (60,), generator=generator).tolist()
    for length in (10, 12, 40, 39, 41, 5, 60, 1, 30):
        for text in (ids[:length], [*ids[: length // 2], 3, *ids[length // 2 : length]]):
            fresh = PromptLookup().propose(text, 5, _as_it_is, None)
            assert kept.propose(text, 5, _as_it_is, None) == fresh
            assert [one.id for one in fresh] == _looked_up(text, 5)


def _looked_up(ids: list[int], count: int) -> list[int]:
    """The rule by itself: a search from behind, long runs first."""
    for size in range(min(3, len(ids) - 1), 1, -1):
        for start in range(len(ids) - size - 1, -1, -1):
            if ids[start : start + size] == ids[-size:]:
                return ids[start + size : start + size + count]
    return []


@kinds
def test_a_draft_guesses_only_while_the_text_fits_its_context(kind: Any, decoder: Decoder) -> None:
    """PROMPT has 5 ids: a context of 8 takes them and three more, so four guesses at most."""
    short = random_decoder(replace(small_spec(VOCAB), max_positions=8), seed=1)
    longest = 0
    real = short.forward

    def watch(ids: torch.Tensor, cache: Any = None, **how: Any) -> torch.Tensor:
        nonlocal longest
        longest = max(longest, ids.shape[1] + (cache.length if cache is not None else 0))
        return real(ids, cache, **how)

    short.forward = watch  # type: ignore[method-assign]
    draft = DraftModel(Stepper(short, make_cache(kind, short.spec)))
    plain, _ = _run(decoder, _proposer("lookup", decoder))
    got, strategy = _run(decoder, draft, kind=kind)
    assert [one.id for one in got] == [one.id for one in plain]
    assert longest == 8
    assert 0 < strategy.acceptance.proposed <= 8


@pytest.mark.parametrize("size", [VOCAB - 2, VOCAB + 3])
@pytest.mark.parametrize("sampling", [False, True])
def test_a_draft_with_other_padding_of_the_vocabulary(
    decoder: Decoder, size: int, sampling: bool
) -> None:
    draft = random_decoder(small_spec(size), seed=2, dtype=torch.float64)
    proposer = DraftModel(Stepper(draft, make_cache("growing", draft.spec)))
    got, _ = _run(decoder, proposer, sampling=sampling, params=SamplingParams(seed=1), new=12)
    assert len(got) == 12
    assert all(one.id < VOCAB for one in got)
