"""Weights packed while they are loaded: which, from what, and what comes of it."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest
import torch
from torch import Tensor

from llmcli.engine.load import Loaded, load_decoder
from llmcli.engine.packing import packed_parameters
from llmcli.errors import CheckpointError
from llmcli.model import Decoder
from llmcli.model.linear import Weighted
from llmcli.model.packed import Packed, pack
from llmcli.spec import PackingKind, packable, packing, parameter_shapes
from tests.families.rows import ROWS
from tests.families.turns import in_turns
from tests.insight.decoders import spec_of
from tests.oracle import Row
from tests.tiny import random_parameters, tiny_tensors, write_tiny

KINDS: tuple[PackingKind, ...] = get_args(PackingKind)
CPU = torch.device("cpu")
IDS = torch.tensor([[1, 5, 2, 7, 3]])


def _logits(decoder: Decoder) -> Tensor:
    with torch.inference_mode():
        logits: Tensor = decoder(IDS, last_only=False)
    return logits


# Which matrices are packed is one and the same for both kinds, all but a few of them.
@in_turns("kind", KINDS, standing=KINDS)
def test_every_family_computes_with_what_its_matrices_were_rounded_to(
    row: Row, kind: PackingKind
) -> None:
    spec = spec_of(row)
    drawn, kinds = random_parameters(spec), packing(spec, kind)
    held = dict(packed_parameters(drawn.items(), kinds, device=CPU))
    assert {name for name, one in held.items() if isinstance(one, Packed)} == packable(spec)
    plain = {n: one.unpacked() if isinstance(one, Packed) else one for n, one in held.items()}
    made = _logits(Decoder.filled(spec, held.items(), dtype=torch.float32))
    torch.testing.assert_close(
        made, _logits(Decoder.filled(spec, plain.items())), atol=1e-4, rtol=1e-4
    )
    assert not torch.allclose(made, _logits(Decoder.filled(spec, drawn.items())), atol=1e-4)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_nearly_all_numbers_are_packed_and_nothing_delicate(row: Row) -> None:
    spec = spec_of(row)
    left = parameter_shapes(spec).keys() - packable(spec)
    delicate = ("router", "norm", "conv", "sinks", "bias", "embed_positions", "gate", "a_proj")
    assert all(any(word in name for word in (*delicate, "b_proj", "a_log")) for name in left)
    assert not [name for name in packable(spec) if "router" in name or "norm" in name]
    assert set(packing(spec, "int4").values()) == {"int8", "int4"}
    assert packing(spec, "int4")["embed_tokens.weight"] == "int8"


def _loaded(folder: Path, kind: PackingKind, *, dtype: torch.dtype, tie: bool = False) -> Loaded:
    tensors = {name: tensor.to(dtype) for name, tensor in tiny_tensors().items()}
    if tie:
        del tensors["lm_head.weight"]
    directory = write_tiny(folder, tensors, config={"tie_word_embeddings": tie})
    return load_decoder(directory, device="cpu", quantize=kind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_matrices_are_packed_from_the_numbers_in_the_file(
    tmp_path: Path, kind: PackingKind, dtype: torch.dtype
) -> None:
    loaded = _loaded(tmp_path, kind, dtype=dtype)
    assert loaded.decoder.dtype == torch.float32
    assert loaded.quantized == kind
    stored = tiny_tensors()["model.layers.1.mlp.down_proj.weight"].to(dtype)
    module = loaded.decoder.get_submodule("layers.1.mlp.down_proj")
    assert isinstance(module, Weighted)
    assert module.packed is not None
    for name, part in pack(stored, kind).parts.items():
        assert torch.equal(module.packed.parts[name], part)


@pytest.mark.parametrize("kind", KINDS)
def test_a_tied_head_reads_the_packed_embedding(tmp_path: Path, kind: PackingKind) -> None:
    decoder = _loaded(tmp_path, kind, dtype=torch.float32, tie=True).decoder
    assert decoder.lm_head.packed is None
    assert decoder.embed_tokens.packed is not None
    x = decoder.norm(decoder.hidden(IDS))
    expected = x @ decoder.embed_tokens.matrix().T
    torch.testing.assert_close(_logits(decoder), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -1e6])
def test_a_number_that_no_code_stands_for_is_refused(
    tmp_path: Path, kind: PackingKind, bad: float
) -> None:
    tensors = tiny_tensors()
    tensors["model.layers.0.mlp.up_proj.weight"][3, 4] = bad
    directory = write_tiny(tmp_path, tensors)
    if kind == "int8" and bad == -1e6:
        load_decoder(directory, device="cpu", quantize=kind)  # its scale is a float32
        return
    with pytest.raises(CheckpointError, match=r"layers.0.mlp.up_proj.weight cannot be quantised"):
        load_decoder(directory, device="cpu", quantize=kind)
