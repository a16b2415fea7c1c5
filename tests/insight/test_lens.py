"""The logit lens: its last row is the model's own answer, its others come through norm and head."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from llmcli.errors import GenerationError
from llmcli.insight import lens as lens_module
from llmcli.insight.lens import look
from llmcli.model import Decoder
from llmcli.model.taps import Site, tapped
from tests.insight.decoders import ALL, decoder_of, ids_for
from tests.oracle import Row
from tests.tiny import random_decoder


def _probs(decoder: Decoder, ids: Tensor) -> Tensor:
    with torch.inference_mode():
        probs: Tensor = decoder(ids, last_only=False)[0].softmax(-1)
    return probs


@pytest.mark.parametrize("row", ALL, ids=lambda row: row.name)
def test_the_last_row_is_the_models_own(row: Row) -> None:
    decoder = decoder_of(row)
    ids, positions = ids_for(decoder.spec), (0, 7, 20)
    found = look(decoder, ids, positions=positions, name=str)
    own = _probs(decoder, ids)
    assert [one.layer for one in found.rows] == [None, *range(decoder.spec.num_layers)]
    assert found.inputs == tuple(str(int(ids[0, at])) for at in positions)
    for at, cell in zip(positions, found.rows[-1].cells, strict=True):
        assert cell.id == int(own[at].argmax())
        assert cell.prob == pytest.approx(float(own[at].max()), abs=1e-9)
        assert (cell.end_rank, cell.end_prob) == (1, cell.prob)


def test_other_rows_are_streams_through_norm_and_head(monkeypatch) -> None:
    monkeypatch.setattr(lens_module, "_ROWS", 2)
    decoder = random_decoder()
    ids = ids_for(decoder.spec)
    streams: list[Tensor] = []
    with torch.inference_mode(), tapped(decoder, {Site("layer_out", 0): streams.append}):
        decoder(ids)
    with torch.inference_mode():
        probs = decoder.unembed(streams[0])[0].softmax(-1)
    found = look(decoder, ids, positions=range(5, 10), name=str).rows[1]
    ends = _probs(decoder, ids).argmax(-1).tolist()
    ranks = []
    for at, cell in zip(range(5, 10), found.cells, strict=True):
        assert (cell.id, cell.token) == (int(probs[at].argmax()), str(int(probs[at].argmax())))
        assert cell.prob == pytest.approx(float(probs[at].max()), abs=1e-9)
        assert cell.end_prob == pytest.approx(float(probs[at, ends[at]]), abs=1e-9)
        assert cell.end_rank == 1 + int((probs[at] > probs[at, ends[at]]).sum())
        ranks.append(cell.end_rank)
    assert max(ranks) > 1


def test_later_tokens_are_not_read() -> None:
    decoder = random_decoder()
    ids = ids_for(decoder.spec)
    short = look(decoder, ids[:, :8], positions=[7], name=str)
    assert look(decoder, ids, positions=[7], name=str) == short


def test_no_token_is_named_for_logits_that_are_not_finite() -> None:
    decoder = random_decoder()
    decoder.norm.weight.data[0] = float("nan")
    with pytest.raises(GenerationError, match=r"not finite .* come from norm"):
        look(decoder, torch.tensor([[1, 2]]), positions=(1,), name=str)
