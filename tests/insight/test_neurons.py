"""Neurons of an MLP: together they are its output, and their logits are those of attribution."""

from __future__ import annotations

import pytest
import torch

from llmcli.insight import neurons as module
from llmcli.insight.attribution import attribute
from llmcli.insight.neurons import direct_logits, watch_neurons
from llmcli.model.block import Block
from llmcli.model.experts import SparseMLP
from llmcli.model.mlp import PlainMLP
from llmcli.model.taps import Site
from tests.insight.decoders import ALL, decoder_of, ids_for, spec_of
from tests.oracle import Row
from tests.tiny import random_decoder, tiny_spec


@pytest.mark.parametrize("row", ALL, ids=lambda row: row.name)
def test_neurons_sum_to_what_the_mlp_adds(row: Row) -> None:
    decoder = decoder_of(row)
    ids = ids_for(decoder.spec)
    with torch.inference_mode():
        seen = module._watch(decoder, ids)
    parts = attribute(decoder, ids, position=ids.shape[1] - 1, token=3, name=str).parts
    for layer, block in enumerate(decoder.layers):
        assert isinstance(block, Block)
        firing = module._firing(block.mlp, seen[Site("mlp_in", layer)])
        values = sum(one.activations @ one.values * one.weight for one in firing)
        out = seen[Site("mlp_out", layer)]
        biases = sum(_bias(block, one.expert) * one.weight for one in firing)
        assert torch.allclose(values + biases, out, rtol=0, atol=1e-9 * float(out.abs().max()))
        logit = float(direct_logits(decoder, seen, layer, out[None])[0, 3])
        told = sum(
            part.share
            for part in parts
            if part.layer == layer and (part.kind == "mlp" or part.of == "MLP output")
        )
        assert logit == pytest.approx(told, abs=1e-9)


def _bias(block: Block, expert: str) -> torch.Tensor:
    mlp = block.mlp
    if isinstance(mlp, SparseMLP):
        number = expert.removeprefix("expert ")
        chosen = mlp.experts[int(number)] if number.isdecimal() else mlp.shared
    else:
        chosen = mlp
    assert isinstance(chosen, PlainMLP)
    bias = chosen.down_proj.bias
    return torch.zeros((), dtype=torch.float64) if bias is None else bias


def test_the_strongest_come_first_with_what_they_do(monkeypatch) -> None:
    monkeypatch.setattr(module, "_ROWS", 50)  # the head in several pieces
    decoder = random_decoder(tiny_spec(), dtype=torch.float64)
    ids = ids_for(decoder.spec)
    (layer,) = watch_neurons(decoder, ids, position=4, name=str, layers=[1], top=200).layers
    lengths = [one.length for one in layer.strongest]
    assert lengths == sorted(lengths, reverse=True)
    assert sorted(one.index for one in layer.strongest) == list(range(128))
    assert layer.positive == sum(one.activation > 0 for one in layer.strongest)
    half = sum(lengths) / 2
    assert sum(lengths[: layer.for_half]) >= half > sum(lengths[: layer.for_half - 1])
    first = layer.strongest[0]
    seen = module._watch(decoder, ids[:, :5])
    value = decoder.get_submodule("layers.1.mlp.down_proj").weight[:, first.index]
    logits = direct_logits(decoder, seen, 1, value[None] * first.activation)[0]
    assert first.promotes[0].id == int(logits.argmax())
    assert first.promotes[0].logit == pytest.approx(float(logits.max()))
    assert first.suppresses[0].id == int(logits.argmin())


def test_experts_are_named() -> None:
    rows = [row for row in ALL if spec_of(row).experts is not None]
    assert len(rows) > 3
    for row in rows:
        decoder = decoder_of(row)
        found = watch_neurons(decoder, ids_for(decoder.spec), position=5, name=str, top=3).layers
        facts = decoder.spec.experts
        assert facts is not None
        for layer, kind in zip(found, decoder.spec.layers, strict=True):
            shared = bool(facts.shared_size) * ("shared expert",)
            assert len(layer.experts) == (facts.top_k + len(shared) if kind.sparse else 0)
            assert all((one.expert in layer.experts) == kind.sparse for one in layer.strongest)
