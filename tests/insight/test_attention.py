"""Scores and pictures of heads against weights computed at once, and on heads made for a score."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from llmcli.insight import attention as module
from llmcli.insight.attention import Attention, HeadScores, watch_attention
from llmcli.model import Decoder, taps
from llmcli.model.attend import Attending
from llmcli.model.taps import attending, tapped
from tests.insight.decoders import ALL, decoder_of, ids_for
from tests.oracle import Row
from tests.tiny import random_decoder, random_parameters, tiny_spec


def _watch(decoder: Decoder, ids: Tensor, **more: object) -> Attention:
    return watch_attention(decoder, ids, name=str, **more)  # type: ignore[arg-type]


def _weights(decoder: Decoder, ids: Tensor, layer: int) -> Tensor:
    """[H,T,T] in one piece."""
    found: list[Tensor] = []
    with torch.inference_mode(), tapped(decoder, {}, {layer: lambda _, w: found.append(w[0])}):
        decoder(ids)
    return torch.cat(found, 1)


@pytest.mark.parametrize("row", ALL, ids=lambda row: row.name)
def test_scores_are_means_of_the_weights(row: Row, monkeypatch) -> None:
    decoder = decoder_of(row)
    ids = ids_for(decoder.spec)
    whole = {
        layer: _weights(decoder, ids, layer)
        for layer in range(decoder.spec.num_layers)
        if attending(decoder, layer)
    }
    monkeypatch.setattr(taps, "_WEIGHT_ROWS", 8)
    monkeypatch.setattr(module, "_SIDE", 7)
    found = _watch(decoder, ids)
    assert [(one.layer, one.head) for one in found.heads] == [
        (layer, head) for layer in whole for head in range(decoder.spec.num_heads)
    ]
    assert set(found.without) == set(range(decoder.spec.num_layers)) - set(whole)
    assert set(found.without.values()) <= {"gated delta"}
    for one, pooled in zip(found.heads, found.maps, strict=True):
        weights = whole[one.layer][one.head]
        later = weights[1:]
        assert one.first == pytest.approx(float(later[:, 0].mean()))
        assert one.previous == pytest.approx(float(weights.diagonal(-1).mean()))
        rest = (1 - later.sum(-1, keepdim=True)).clamp(min=0)
        row_bits = torch.special.entr(torch.cat((later, rest), 1)).sum(-1) / math.log(2)
        assert one.entropy_bits == pytest.approx(float(row_bits.mean()))
        # 21 tokens in 7 squares: means over 3 queries of sums over 3 keys.
        squares = weights.view(7, 3, 7, 3).sum(3).mean(1)
        torch.testing.assert_close(
            torch.tensor(pooled.weights, dtype=torch.float64), squares, rtol=1e-9, atol=1e-9
        )


def test_one_head_in_detail() -> None:
    decoder = random_decoder()
    ids = ids_for(decoder.spec, 200)[:, :140]  # more than one piece
    weights = _weights(decoder, ids, 1)[2].float()
    found = _watch(decoder, ids % 320, layers=[1], detail=(1, 2)).detail
    assert found is not None
    assert torch.equal(torch.tensor(found.weights), weights)


def _induction_head() -> Decoder:
    """A random decoder; what its heads attend to is put in place by the test."""
    spec = tiny_spec()
    return Decoder.filled(spec, random_parameters(spec).items()).eval()


@pytest.mark.parametrize("ideal", ["induction", "previous", "first"])
def test_a_head_made_for_a_score_gets_it(ideal: str, monkeypatch) -> None:
    decoder = _induction_head()

    def weights(self: Attending, q: Tensor, k: Tensor, visibility: object) -> Tensor:
        out = torch.zeros(1, 4, q.shape[2], k.shape[2])
        for row in range(q.shape[2]):
            key = {"induction": row - module._PROBE + 1, "previous": row - 1, "first": 0}[ideal]
            out[:, :, row, max(key, 0)] = 1
        return out

    monkeypatch.setattr(Attending, "weights", weights)
    for one in _watch(decoder, ids_for(decoder.spec)).heads:
        scores = {"induction": one.induction, "previous": one.previous, "first": one.first}
        assert scores.pop(ideal) == pytest.approx(1)
        # The first token's successor has the first token before it.
        assert all(score is not None and score < 0.1 for score in scores.values()) or (
            ideal == "induction" and one.first == pytest.approx(1)
        )
        assert one.entropy_bits == 0


def test_one_token_has_no_scores_but_induction() -> None:
    one = _watch(random_decoder(), torch.tensor([[3]])).heads[0]
    assert isinstance(one, HeadScores)
    assert (one.entropy_bits, one.first, one.previous) == (None, None, None)
    assert one.induction is not None


def test_special_ids_stay_out_of_the_random_sequence() -> None:
    decoder = random_decoder()
    seen: list[Tensor] = []
    own = decoder.forward

    def forward(ids: Tensor) -> Tensor:
        seen.append(ids)
        return own(ids)

    decoder.forward = forward  # type: ignore[method-assign, assignment]
    _watch(decoder, torch.tensor([[3, 4]]), special_ids=range(280))
    first, *rest = seen[-1][0].tolist()
    assert first == 3
    assert len(rest) == 64
    assert rest[:32] == rest[32:]
    assert len(set(rest)) == 32
    assert min(rest) >= 280


@pytest.mark.parametrize("layers", [None, [1]])
def test_progress_counts_every_row_once(layers: list[int] | None, monkeypatch) -> None:
    monkeypatch.setattr(taps, "_WEIGHT_ROWS", 8)
    decoder = random_decoder()
    ids, told = ids_for(decoder.spec), []
    _watch(decoder, ids, layers=layers, on_progress=lambda *one: told.append(one))
    done = [one for one, _ in told]
    assert done == sorted(set(done))
    assert len(told) > 4
    assert {done[-1]} == {total for _, total in told}
