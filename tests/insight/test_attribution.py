"""Attribution of every row sums to the logit, and what it says of a part is what that part does."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from llmcli.errors import GenerationError
from llmcli.insight.attribution import Attribution, attribute
from llmcli.model import Decoder
from llmcli.model.edits import zero_head
from llmcli.model.taps import tapped
from tests.insight.decoders import ALL, decoder_of, ids_for, spec_of
from tests.oracle import Row
from tests.tiny import random_decoder

rows = pytest.mark.parametrize("row", ALL, ids=lambda row: row.name)
POSITION = 13


def _attribute(decoder: Decoder, token: int | None = None) -> Attribution:
    ids = ids_for(decoder.spec)
    return attribute(decoder, ids, position=POSITION, token=token, name=str)


@torch.inference_mode()
def _logits(decoder: Decoder) -> Tensor:
    logits: Tensor = decoder(ids_for(decoder.spec), last_only=False)[0, POSITION]
    return logits


@rows
def test_parts_sum_to_the_logit(row: Row) -> None:
    decoder = decoder_of(row)
    found = _attribute(decoder, 5)
    rounding = found.parts[-1]
    assert rounding.kind == "rounding"
    assert abs(rounding.share) < 1e-9
    assert sum(part.share for part in found.parts) == pytest.approx(found.logit, abs=1e-12)
    cap = decoder.spec.logit_softcap
    logit = torch.tensor(found.logit, dtype=torch.float64)
    seen = logit if cap is None else torch.tanh(logit / cap) * cap
    assert float(_logits(decoder)[5]) == pytest.approx(float(seen), rel=1e-9, abs=1e-9)
    assert found.softcap == cap


@rows
def test_every_part_of_the_decoder_is_there_once(row: Row) -> None:
    spec, found = spec_of(row), _attribute(decoder_of(row), 5)
    keys = [(part.kind, part.layer, part.head, part.of) for part in found.parts]
    assert len(set(keys)) == len(keys)
    for layer in range(spec.num_layers):
        mixer = spec.layers[layer].mixer
        recurrent = mixer == "gated_delta" and spec.linear is not None
        count = spec.linear.num_value_heads if recurrent and spec.linear else spec.num_heads
        assert [head for kind, at, head, _ in keys if (kind, at) == ("head", layer)] == [
            *range(count)
        ]
        assert ("mlp", layer, None, "") in keys
    biases = {(layer, of) for kind, layer, _, of in keys if kind == "bias"}
    assert ((0, "attention output") in biases) is (
        _has_attention_bias(row) and spec.layers[0].mixer == "attention"
    )
    assert ((None, "output head") in biases) is spec.head_bias


def _has_attention_bias(row: Row) -> bool:
    spec = spec_of(row)
    return spec.attn_out_bias if spec.latent is None else spec.latent.bias


def test_the_likeliest_token_is_the_default() -> None:
    decoder = random_decoder()
    assert _attribute(decoder).id == int(_logits(decoder).argmax())


def test_the_share_of_the_last_layers_head_is_what_is_lost_without_it() -> None:
    """With the final norm's scale undone, as it would change along."""
    decoder = random_decoder()
    found = _attribute(decoder, 5)
    (share,) = [part.share for part in found.parts if (part.layer, part.head) == (1, 2)]
    ids = ids_for(decoder.spec)
    streams: list[Tensor] = []

    def stream() -> Tensor:
        return decoder.hidden(ids)[0, POSITION]

    # The MLP behind it would answer to the change, so it is taken out of both.
    mlp = decoder.layers[1].get_submodule("mlp.down_proj")
    assert isinstance(mlp.weight, Tensor)
    mlp.weight.zero_()
    with torch.inference_mode():
        streams.append(stream())
        with tapped(decoder, zero_head(decoder, 1, frozenset({2}))):
            streams.append(stream())
        found = _attribute(decoder, 5)
        (share,) = [part.share for part in found.parts if (part.layer, part.head) == (1, 2)]
        scale = torch.rsqrt(streams[0].square().mean() + decoder.spec.norm_eps)
        row = decoder.lm_head.row(5, decoder.embed_tokens.weight)[0]
        weight = decoder.norm.get_parameter("weight")
        lost = (streams[0] - streams[1]) * scale * weight @ row
    assert share == pytest.approx(float(lost), abs=1e-9)
    assert abs(share) > 1e-3


def test_in_less_than_float64_the_rest_is_named_rounding() -> None:
    decoder = random_decoder(dtype=torch.bfloat16)
    found = _attribute(decoder, 5)
    assert 1e-9 < abs(found.parts[-1].share) < 0.2
    assert sum(part.share for part in found.parts) == pytest.approx(found.logit, abs=1e-12)


def test_a_cap_on_the_logits_is_told() -> None:
    spec = replace(random_decoder().spec, logit_softcap=3.0)
    assert _attribute(random_decoder(spec), 5).softcap == 3.0


def test_no_token_is_named_for_logits_that_are_not_finite() -> None:
    decoder = random_decoder()
    decoder.norm.weight.data[0] = float("nan")
    with pytest.raises(GenerationError, match=r"not finite .* come from norm"):
        _attribute(decoder)
