"""Nearest tokens against plain arithmetic on a made embedding."""

from __future__ import annotations

import math

import pytest
import torch

from llmcli.insight import nearest as module
from llmcli.insight.nearest import analogy, neighbors
from llmcli.model import Decoder
from tests.tiny import random_decoder, tiny_spec


def _decoder(rows: dict[int, list[float]], *, tied: bool = True) -> Decoder:
    decoder = random_decoder(tiny_spec(tie_word_embeddings=tied), dtype=torch.float64)
    with torch.no_grad():
        weight = decoder.embed_tokens.weight.zero_()
        for id_, row in rows.items():
            weight[id_, : len(row)] = torch.tensor(row, dtype=torch.float64)
    return decoder


@pytest.mark.parametrize("rows_at_once", [7, 16384])
def test_nearest_by_angle_and_not_by_length(monkeypatch, rows_at_once: int) -> None:
    monkeypatch.setattr(module, "_ROWS", rows_at_once)
    decoder = _decoder({5: [3.0, 0, 0], 9: [0.1, 0.1], 200: [50.0, 50, 50], 319: [-1.0]})
    found = neighbors(decoder, 5, name=str, top=3)
    assert (found.token, found.length, found.tied) == ("5", 3.0, True)
    (one,) = found.found
    assert [near.id for near in one.near[:2]] == [9, 200]
    assert [near.cosine for near in one.near] == pytest.approx(
        [1 / math.sqrt(2), 1 / math.sqrt(3), 0]
    )


def test_an_own_head_is_searched_too_and_rows_of_zeros_have_no_direction() -> None:
    decoder = _decoder({5: [1.0]}, tied=False)
    found = neighbors(decoder, 7, name=str, top=319).found
    assert [one.matrix for one in found] == ["embedding", "unembedding"]
    assert found[0].zero
    assert found[0].near == ()
    weight = decoder.lm_head.weight
    assert weight is not None
    cosines = torch.nn.functional.cosine_similarity(weight, weight[7:8])
    assert len(found[1].near) == 319
    assert 7 not in {near.id for near in found[1].near}
    for near in found[1].near:
        assert near.cosine == pytest.approx(float(cosines[near.id]))


def test_analogy_adds_directions_and_leaves_its_inputs_out() -> None:
    # man, woman, king, queen, of different lengths; 4 lies nearer than any but the inputs
    decoder = _decoder({0: [1.0, 0], 1: [0, 5.0], 2: [2.0, 0, 2.0], 3: [0, 0.1, 0.1], 4: [0, 9, 4]})
    (found,) = analogy(decoder, (0, 1, 2), name=str, top=2).found
    goal = torch.tensor([math.sqrt(0.5) - 1, 1.0, math.sqrt(0.5)])
    assert [near.id for near in found.near] == [3, 4]
    queen = torch.tensor([0, 1.0, 1.0])
    cosine = float(torch.nn.functional.cosine_similarity(goal, queen, dim=0))
    assert found.near[0].cosine == pytest.approx(cosine)
    same = analogy(decoder, (1, 1, 0), name=str, top=319)
    assert [one.cosine for one in same.inputs] == pytest.approx([0, 0, 1])
    assert not {0, 1} & {near.id for near in same.found[0].near}
