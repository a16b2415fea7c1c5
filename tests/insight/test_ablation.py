"""Ablation: identities that hold for every family, measures against plain arithmetic."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from llmcli.errors import UsageError
from llmcli.insight import ablation as module
from llmcli.insight.ablation import compare, parts_of, sweep, taps_for
from llmcli.insight.edits import Edits, has_heads, read_edits
from llmcli.model import Decoder
from llmcli.model.taps import Site, head_projection, tapped
from llmcli.spec import parameter_shapes
from tests.insight.decoders import ALL, decoder_of, ids_for, spec_of
from tests.oracle import Row
from tests.tiny import random_decoder, tiny_spec

EVERY = pytest.mark.parametrize("row", ALL, ids=lambda row: row.name)
RECURRENT = next(row for row in ALL if spec_of(row).linear is not None)


def _logits(decoder: Decoder, ids: Tensor, edits: Edits | None = None) -> Tensor:
    with torch.inference_mode(), tapped(decoder, taps_for(decoder, edits or Edits())):
        logits: Tensor = decoder(ids, last_only=False)
    return logits


@EVERY
def test_a_factor_of_one_changes_nothing_and_zero_does(row: Row) -> None:
    decoder = decoder_of(row)
    ids = ids_for(decoder.spec)
    plain = _logits(decoder, ids)
    # A residual scale is divided out and multiplied in again, so not always bit for bit.
    same = _logits(decoder, ids, Edits(mlps={0: 1.0}))
    assert torch.allclose(plain, same, rtol=0, atol=1e-12)
    assert float((plain - _logits(decoder, ids, Edits(mlps={0: 0.0}))).abs().max()) > 1e-3
    assert torch.equal(plain, _logits(decoder, ids))


@EVERY
def test_a_skipped_layer_is_as_if_it_were_not_there(row: Row) -> None:
    decoder = decoder_of(row)
    ids, gone = ids_for(decoder.spec), decoder.spec.num_layers // 2
    layers = decoder.spec.layers
    spec = replace(decoder.spec, layers=layers[:gone] + layers[gone + 1 :])
    held = dict(decoder.named_parameters())

    def kept() -> Iterator[tuple[str, Tensor]]:
        for name in parameter_shapes(spec):
            parts = name.split(".")
            if parts[0] == "layers" and int(parts[1]) >= gone:
                parts[1] = str(int(parts[1]) + 1)
            yield name, held[".".join(parts)]

    without = Decoder.filled(spec, kept())
    found = _logits(decoder, ids, Edits(skip=frozenset({gone})))
    assert torch.allclose(found, _logits(without, ids), rtol=0, atol=1e-9)


@EVERY
def test_without_heads_attention_adds_its_bias(row: Row) -> None:
    decoder = decoder_of(row)
    layer = next(at for at in range(decoder.spec.num_layers) if has_heads(decoder.spec, at))
    heads = frozenset(range(decoder.spec.num_heads))
    out: list[Tensor] = []
    taps = taps_for(decoder, Edits(heads={layer: heads}))
    with torch.inference_mode(), tapped(decoder, {**taps, Site("attn_out", layer): out.append}):
        decoder(ids_for(decoder.spec))
    bias = head_projection(decoder, layer)[0].bias
    expected = torch.zeros_like(out[0]) if bias is None else bias.expand_as(out[0])
    assert torch.equal(out[0], expected)


def test_measures_are_those_of_the_logits(monkeypatch) -> None:
    monkeypatch.setattr(module, "_ROWS", 4)
    decoder = random_decoder(tiny_spec(), dtype=torch.float64)
    ids, edits = ids_for(decoder.spec), Edits(heads={1: frozenset({2})}, mlps={0: 0.5})
    found = compare(decoder, ids, edits, new=8, name=str)
    p, q = (_logits(decoder, ids, one)[0, :-1].log_softmax(-1) for one in (None, edits))
    kl = (p.exp() * (p - q)).sum(-1)
    assert [one.kl for one in found.tokens] == pytest.approx(kl.tolist(), rel=1e-9)
    assert float(kl.min()) > 1e-6
    at = torch.arange(20)
    own = [row[at, ids[0, 1:]] for row in (p, q)]
    assert [one.base_prob for one in found.tokens] == pytest.approx(own[0].exp().tolist())
    assert [one.changed_prob for one in found.tokens] == pytest.approx(own[1].exp().tolist())
    assert found.prompt_loss == pytest.approx([-float(one[:7].mean()) for one in own])
    assert found.text_loss == pytest.approx([-float(one[7:].mean()) for one in own])
    assert found.mean_kl == pytest.approx(float(kl.mean()))
    assert [one.position for one in found.tokens] == list(range(1, 21))
    alone = compare(decoder, ids[:, :1], edits, new=1, name=str)
    assert (alone.tokens, alone.mean_kl, alone.prompt_loss, alone.text_loss) == ((), *[None] * 3)


def test_a_sweep_takes_each_out_alone() -> None:
    decoder = decoder_of(RECURRENT)
    spec, ids = decoder.spec, ids_for(decoder.spec)
    heads, layers, mlps = (list(sweep(decoder, ids, what)) for what in module.SWEEPS)
    able = [layer for layer in range(spec.num_layers) if has_heads(spec, layer)]
    assert 0 < len(able) < spec.num_layers
    assert [(one.layer, one.head) for one in heads] == parts_of(decoder, "heads")
    assert len(heads) == len(able) * spec.num_heads
    assert len(layers) == len(mlps) == spec.num_layers
    asked = [
        (heads[1], Edits(heads={able[0]: frozenset({1})})),
        (layers[1], Edits(skip=frozenset({1}))),
        (mlps[1], Edits(mlps={1: 0.0})),
    ]
    for effect, edits in asked:
        losses = compare(decoder, ids, edits, new=ids.shape[1], name=str).prompt_loss
        assert losses is not None
        assert effect.loss == pytest.approx(losses[1], abs=1e-12)
        assert effect.change == pytest.approx(losses[1] - losses[0], abs=1e-12)
        assert effect.change != 0


def test_edits_are_told_in_plain_words() -> None:
    edits = read_edits(
        tiny_spec(num_hidden_layers=4),
        skip_layer=[3],
        zero_head=["0.1", "0.3", "0.1"],
        zero_mlp=[1],
        scale_mlp=["2=-0.5"],
    )
    assert edits.told() == (
        "layer 3 skipped",
        "head 0.1 zeroed",
        "head 0.3 zeroed",
        "MLP 1 zeroed",
        "MLP 2 times -0.5",
    )
    assert not read_edits(tiny_spec())


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"skip_layer": [2]}, "--skip-layer is 2, out of range: there are 2 layers"),
        ({"zero_mlp": [-1]}, "--zero-mlp is -1, out of range"),
        ({"zero_head": ["2.0"]}, "--zero-head 2.0: the layer is 2, out of range"),
        ({"zero_head": ["1.4"]}, "the head is 4, out of range: there are 4 heads in layer 1"),
        ({"zero_head": ["3"]}, "--zero-head '3' is not LAYER.HEAD"),
        ({"zero_head": ["\x1b.1"]}, "--zero-head '\\x1b.1' is not"),
        ({"scale_mlp": ["1"]}, "is not LAYER=FACTOR"),
        ({"scale_mlp": ["1=nan"]}, "is not LAYER=FACTOR"),
        ({"scale_mlp": ["1=inf"]}, "is not LAYER=FACTOR"),
        ({"scale_mlp": ["7=1"]}, "--scale-mlp 7=1: the layer is 7, out of range"),
        ({"zero_mlp": [1], "scale_mlp": ["1=1"]}, "the MLP of layer 1 is changed twice"),
        ({"skip_layer": [1], "zero_head": ["1.0"]}, "layer 1 is skipped"),
    ],
)
def test_refusals(asked: dict[str, list[str]], told: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_edits(tiny_spec(), **asked)  # type: ignore[arg-type]
    assert told in caught.value.message


def test_a_recurrent_layer_has_no_heads() -> None:
    spec = spec_of(RECURRENT)
    layer = next(at for at in range(spec.num_layers) if not has_heads(spec, at))
    with pytest.raises(UsageError, match=r"recurrent \(gated delta\) and has no attention heads"):
        read_edits(spec, zero_head=[f"{layer}.0"])
