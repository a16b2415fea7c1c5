"""A constraint holds under every strategy that reads it; its stage says when nothing is left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from llmcli.cache import CacheKind
from llmcli.errors import GenerationError
from llmcli.generation.explain import Recorder
from llmcli.generation.params import SamplingParams
from llmcli.generation.processors.constrain import constrain
from llmcli.generation.stop import StopRule
from llmcli.generation.strategies import reads
from llmcli.model import Decoder
from tests.generation.strategy_cases import CASES, Case
from tests.tiny import random_decoder, tiny_spec

VOCAB, STOP, PROMPT = 24, 3, [5, 9, 5, 9, 5]


@dataclass(frozen=True)
class Language:
    """The texts allowed, each a tuple of ids."""

    texts: frozenset[tuple[int, ...]]
    size: int = VOCAB

    def allowed(self, ids: Sequence[int]) -> NDArray[np.bool_]:
        mask = np.zeros(self.size, dtype=np.bool_)
        for text in self.texts:
            if text[: len(ids)] == tuple(ids) and len(text) > len(ids):
                mask[text[len(ids)]] = True
        return mask

    def may_end(self, ids: Sequence[int]) -> bool:
        return tuple(ids) in self.texts

    def ended(self, ids: Sequence[int]) -> bool:
        return self.may_end(ids) and not self.allowed(ids).any()

    def fork(self) -> Language:
        return self


def _every(ids: Sequence[int], length: int) -> frozenset[tuple[int, ...]]:
    texts: list[tuple[int, ...]] = [()]
    for _ in range(length):
        texts = [(*text, one) for text in texts for one in ids]
    return frozenset(texts)


@pytest.fixture(scope="module")
def decoder() -> Decoder:
    return random_decoder(tiny_spec(vocab_size=VOCAB), seed=4)


@pytest.mark.parametrize("kind", ["growing", "none"])
@pytest.mark.parametrize("case", [one for one in CASES if "constraint" in reads(one.name)], ids=str)
def test_every_text_is_allowed(decoder: Decoder, case: Case, kind: CacheKind) -> None:
    language = Language(_every([1, 7, 9], 4) | _every([1, 7], 5) | {(9,) * 6})
    stop = StopRule(frozenset({STOP}), 12, 100)
    for seed in range(4):
        tokens = case.run(
            decoder, PROMPT, kind, stop=stop, params=SamplingParams(seed=seed), constraint=language
        )
        *text, last = [token.id for token in tokens]
        assert (tuple(text), last) in {(one, STOP) for one in language.texts}
        assert tokens[-1].finish_reason == "stop"


def test_only_dola_does_not_read_it() -> None:
    assert {one.name for one in CASES if "constraint" not in reads(one.name)} == {"dola"}


def test_greedy_is_the_likeliest_of_what_is_allowed(decoder: Decoder) -> None:
    recorder = Recorder()
    allowed = [1, 7, 11]
    tokens = Case("greedy").run(
        decoder,
        PROMPT,
        stop=StopRule(frozenset(), 5, 100),
        constraint=Language(_every(allowed, 5)),
        explain=recorder,
    )
    ids = [*PROMPT]
    for token, step in zip(tokens, recorder.steps, strict=True):
        logits = decoder(torch.tensor([ids]))[0, -1]
        assert token.id == max(allowed, key=lambda one: logits[one].item())
        assert [stage.name for stage in step.stages] == ["model", "constraint"]
        assert (step.stages[1].left, step.stages[1].num_cut) == (3, VOCAB - 3)
        ids.append(token.id)


def test_an_end_only_where_the_text_may_end() -> None:
    process = constrain(Language(frozenset({(1,), (1, 2)}), 5), {0, 4}, 1)
    logits = torch.arange(6.0)[None]
    assert process(torch.tensor([[9]]), logits).isfinite().nonzero()[:, 1].tolist() == [1]
    assert process(torch.tensor([[9, 1]]), logits).isfinite().nonzero()[:, 1].tolist() == [0, 2, 4]
    assert process(torch.tensor([[9, 1, 2]]), logits).isfinite().nonzero()[:, 1].tolist() == [0, 4]


def test_a_stop_id_is_never_part_of_the_text() -> None:
    process = constrain(Language(frozenset({(4, 1), (2, 1)}), 5), {4}, 0)
    left = process(torch.empty(1, 0, dtype=torch.long), torch.zeros(1, 5))
    assert left.isfinite().nonzero()[:, 1].tolist() == [2]


def test_rows_have_texts_of_their_own() -> None:
    process = constrain(Language(frozenset({(1, 2), (3, 4)})), (), 1)
    left = process(torch.tensor([[0, 1], [0, 3]]), torch.zeros(2, VOCAB))
    assert left.isfinite().nonzero().tolist() == [[0, 2], [1, 4]]


def test_nothing_left_is_an_error_that_says_why() -> None:
    process = constrain(Language(frozenset({(1, 2)})), (), 0)
    with pytest.raises(GenerationError, match="no token that the constraint allows"):
        process(torch.tensor([[5]]), torch.zeros(1, VOCAB))
    logits = torch.zeros(1, VOCAB)
    logits[0, 2] = float("-inf")
    with pytest.raises(GenerationError, match=r"new token 2: the constraint allows 1 tokens"):
        process(torch.tensor([[1]]), logits)
