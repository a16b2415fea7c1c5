"""Penalties and biases on small vocabularies, against plain re-statements of their rules."""

from __future__ import annotations

import random

import pytest
import torch
from torch import Tensor

from llmcli.generation.params import SamplingParams
from llmcli.generation.processors import Surroundings, make_processors
from llmcli.generation.processors.biases import (
    logit_bias,
    min_new_tokens,
    sequence_bias,
    suppress,
)
from llmcli.generation.processors.filters import top_n_sigma, xtc
from llmcli.generation.processors.penalties import (
    dry,
    no_repeat_ngram,
    presence_and_frequency,
    repeated_runs,
    repetition_penalty,
)

CUT = float("-inf")


def _ids(*ids: int) -> Tensor:
    return torch.tensor([ids], dtype=torch.long).view(1, -1)


def _zeros(vocab: int = 5) -> Tensor:
    return torch.zeros(1, vocab)


def test_repetition_penalty_looks_at_the_last_ids_only() -> None:
    logits = torch.ones(1, 5)
    assert repetition_penalty(2.0, last=2)(_ids(0, 1, 2), logits).tolist() == [[1, 0.5, 0.5, 1, 1]]


def test_presence_once_and_frequency_each_time_after_the_prompt() -> None:
    got = presence_and_frequency(1.0, 0.25, prompt=2)(_ids(4, 4, 0, 0, 3), _zeros())
    assert got.tolist() == [[-1.5, 0, 0, -1.25, 0]]


def test_no_repeat_ngram_that_would_ban_all_bans_nothing() -> None:
    got = no_repeat_ngram(1)(_ids(0, 1, 2), _zeros(3))
    assert got.tolist() == [[0, 0, 0]]


def _runs_by_hand(ids: list[int], breakers: frozenset[int]) -> dict[int, int]:
    runs: dict[int, int] = {}
    for place in range(len(ids) - 1):
        length = 0
        while (
            length <= place
            and ids[place - length] == ids[len(ids) - 1 - length]
            and ids[place - length] not in breakers
        ):
            length += 1
        follower = ids[place + 1]
        if length and follower not in breakers:
            runs[follower] = max(length, runs.get(follower, 0))
    return runs


@pytest.mark.parametrize("vocab", [2, 3, 6])
def test_repeated_runs_equal_a_plain_search(vocab: int) -> None:
    draw = random.Random(vocab)
    for _ in range(300):
        ids = [draw.randrange(vocab) for _ in range(draw.randrange(1, 40))]
        breakers = frozenset({0}) if draw.random() < 0.5 else frozenset()
        assert repeated_runs(ids, breakers) == _runs_by_hand(ids, breakers)


def test_repeated_runs_take_linear_time() -> None:
    assert repeated_runs([1] * 50_000) == {1: 49_999}


def test_dry_grows_with_the_run() -> None:
    ids = _ids(1, 2, 3, 4, 1, 2, 3)  # 4 would prolong a run of three
    assert dry(0.5, base=2.0, allowed=2)(ids, _zeros()).tolist() == [[0, 0, 0, 0, -1.0]]
    assert dry(0.5, base=2.0, allowed=4)(ids, _zeros()).tolist() == [[0, 0, 0, 0, 0]]
    assert dry(0.5, base=2.0, allowed=2, breakers={2})(ids, _zeros()).tolist() == [[0.0] * 5]
    assert dry(0.5, base=2.0, allowed=2, last=3)(ids, _zeros()).tolist() == [[0.0] * 5]


def test_dry_of_a_very_long_run_stays_finite() -> None:
    shaped = dry(1.0)(torch.ones(1, 5000, dtype=torch.long), _zeros())
    assert shaped.isfinite().all()
    assert shaped[0, 1] < -1e20


def test_biases_add_and_suppressed_ids_are_cut() -> None:
    assert logit_bias({1: 2.0, 4: -1.0})(_ids(), _zeros()).tolist() == [[0, 2, 0, 0, -1]]
    assert suppress([0, 3])(_ids(), _zeros()).tolist() == [[CUT, 0, 0, CUT, 0]]


def test_stop_ids_are_cut_until_enough_is_said() -> None:
    wait = min_new_tokens(2, [4], prompt=3)
    assert wait(_ids(0, 0, 0, 1), _zeros())[0, 4] == CUT
    assert wait(_ids(0, 0, 0, 1, 1), _zeros())[0, 4] == 0


def test_top_n_sigma() -> None:
    logits = torch.tensor([[4.0, 3.0, 0.0, 0.0, -2.0]])  # standard deviation 2.19
    assert top_n_sigma(1.0)(_ids(), logits).isfinite().tolist() == [
        [True, True, False, False, False]
    ]
    assert top_n_sigma(1e-9)(_ids(), logits).isfinite().sum() == 1
    cut = torch.tensor([[4.0, 3.0, CUT, CUT, CUT]])
    assert top_n_sigma(3.0)(_ids(), cut).isfinite().sum() == 2


def test_xtc_cuts_all_likely_tokens_but_the_least() -> None:
    logits = torch.tensor([[0.4, 0.3, 0.2, 0.1]]).log()
    always = xtc(1.0, 0.15, torch.Generator())
    assert always(_ids(), logits).isfinite().tolist() == [[False, False, True, True]]
    spared = xtc(1.0, 0.15, torch.Generator(), exempt=[1])
    assert torch.equal(spared(_ids(), logits), logits)
    assert torch.equal(xtc(0.0, 0.15, torch.Generator())(_ids(), logits), logits)
    # One token above the threshold alone is kept.
    assert torch.equal(xtc(1.0, 0.35, torch.Generator())(_ids(), logits), logits)


def test_xtc_happens_as_often_as_asked() -> None:
    process = xtc(0.3, 0.1, torch.Generator().manual_seed(0))
    logits = torch.tensor([[0.6, 0.4]]).log()
    hits = sum(not process(_ids(), logits).isfinite().all() for _ in range(2000))
    assert 500 < hits < 700


# runs of ids that the file of a checkpoint favours or forbids, against transformers


@pytest.mark.parametrize(
    "biases",
    [
        [((4,), 1.5)],
        [((1, 4), -2.0), ((3, 1, 5), 4.0)],
        [((1, 2, 3, 1, 2, 9), 1.0), ((2,), 3.0)],
    ],
    ids=str,
)
def test_sequence_bias_as_transformers(biases: list[tuple[tuple[int, ...], float]]) -> None:
    from transformers import SequenceBiasLogitsProcessor

    ids = torch.tensor([[1, 2, 3, 1], [2, 3, 1, 3]])
    logits = torch.randn(2, 10, generator=torch.Generator().manual_seed(0))
    expected = SequenceBiasLogitsProcessor(dict(biases))(ids, logits.clone())
    before = logits.clone()
    assert torch.equal(sequence_bias(biases)(ids, logits), expected)
    assert torch.equal(logits, before)


def test_bad_words_as_transformers() -> None:
    from transformers import NoBadWordsLogitsProcessor

    words = [[4], [1, 5], [3, 1, 6], [2, 2, 7]]
    ids = torch.tensor([[1, 2, 3, 1], [2, 3, 2, 2]])
    logits = torch.randn(2, 10, generator=torch.Generator().manual_seed(0))
    expected = NoBadWordsLogitsProcessor(words, eos_token_id=torch.tensor([9]))(ids, logits.clone())
    params = SamplingParams(bad_words=tuple(tuple(word) for word in words))
    ((name, process),) = make_processors(params, sampling=False)
    assert name == "bad-words"
    assert torch.equal(process(ids, logits), expected)


def test_forbidding_everything_forbids_nothing() -> None:
    logits = torch.zeros(1, 3)
    never = [((id_,), float("-inf")) for id_ in range(3)]
    assert torch.equal(sequence_bias(never)(torch.tensor([[0]]), logits), logits)


def test_only_the_first_new_id_is_kept_from_beginning() -> None:
    params = SamplingParams(begin_suppress=(1,), min_length=4)
    chain = make_processors(
        params, sampling=False, surroundings=Surroundings(prompt=2, stop_ids=(2,))
    )
    assert [name for name, _ in chain] == ["begin-suppress", "min-length"]
    for length, cut in ((2, [1, 2]), (3, [2]), (4, [])):
        logits = torch.zeros(1, 4)
        for _, process in chain:
            logits = process(torch.zeros(1, length, dtype=torch.long), logits)
        assert (~logits[0].isfinite()).nonzero()[:, 0].tolist() == cut
