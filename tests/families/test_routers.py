"""Routers that stay in float32 in a bfloat16 decoder, and the corrections that need it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from llmcli.checkpoint.directory import ModelDir
from llmcli.engine.load import load_decoder
from llmcli.model import Decoder
from llmcli.model.experts import SparseMLP
from llmcli.spec import wide_parameters
from tests.families.conftest import MakeOracle
from tests.families.rows import ROWS
from tests.oracle import Row

WIDE = [row for row in ROWS if row.model_type() in ("deepseek_v2", "deepseek_v3")]


@pytest.mark.parametrize("row", WIDE, ids=lambda row: row.name)
def test_the_router_stays_in_float32(row: Row, oracle: MakeOracle) -> None:
    theirs = oracle(row)
    loaded = load_decoder(ModelDir.open(theirs.folder), device="cpu", dtype="bfloat16")
    spec = loaded.spec
    wide = {name for name, one in loaded.decoder.named_parameters() if one.dtype == torch.float32}
    assert wide == wide_parameters(spec) != frozenset()
    ours, rounded = (
        _router(loaded.decoder),
        _router(_rounded(loaded.decoder)),
    )
    gate = theirs.model.model.layers[-1].mlp.gate
    x = torch.randn(40, spec.hidden_size, generator=torch.Generator().manual_seed(1)).bfloat16()
    with torch.inference_mode():
        _, weights, chosen = gate(x)
        expected = torch.zeros(40, spec.experts.count).scatter_(1, chosen, weights)
        got, worse = (_scattered(mlp, x) for mlp in (ours, rounded))
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-6)
    assert (worse - expected).abs().max() > 1e-3


def _router(decoder: Decoder) -> SparseMLP:
    mlp = decoder.layers[-1].mlp
    assert isinstance(mlp, SparseMLP)
    return mlp


def _rounded(decoder: Decoder) -> Decoder:
    """The same decoder with its routers in bfloat16 like all the rest."""
    spec = decoder.spec
    assert spec.experts is not None
    narrow = replace(spec, experts=replace(spec.experts, wide_router=False))
    parameters = ((name, one.bfloat16()) for name, one in decoder.named_parameters())
    return Decoder.filled(narrow, parameters)


def _scattered(mlp: SparseMLP, x: torch.Tensor) -> torch.Tensor:
    weights, chosen = mlp.route(x)
    return torch.zeros(len(x), mlp.facts.count).scatter_(1, chosen, weights.float())
