"""Bytes that a plan tells of weights are those that a loaded decoder holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from llmcli.acquire.places import installed
from llmcli.acquire.progress import Silent
from llmcli.acquire.resolve import Resolved
from llmcli.checkpoint.directory import ModelDir
from llmcli.engine.load import Loaded, load_decoder
from llmcli.engine.quantizing import quantize
from llmcli.insight.check import check
from llmcli.insight.facts import Facts, Source, config_facts, folder_facts
from llmcli.insight.holding import Computing, holdings, quantized_bytes, read_per_token
from llmcli.insight.summary import summarise
from llmcli.insight.tree import build_tree
from llmcli.model.linear import Weighted
from llmcli.spec import PackingKind, count_parameters
from llmcli.spec.work import forward_work
from tests.acquire.ggufs import write_gguf
from tests.tiny import tiny_tensors, write_tiny

KINDS: list[PackingKind] = ["int8", "int4"]
FLOAT32 = Computing("float32", keeps_narrow=False)
NARROW = Computing("float32", keeps_narrow=True)


def _held(loaded: Loaded) -> int:
    decoder = loaded.decoder
    packed = (one for one in decoder.modules() if isinstance(one, Weighted) and one.packed)
    return sum(one.nbytes for one in packed) + sum(one.nbytes for one in decoder.parameters())


def _source(folder: Path, stored: torch.dtype, **config: Any) -> ModelDir:
    tensors = {name: one.to(stored) for name, one in tiny_tensors().items()}
    return write_tiny(folder / "source", tensors, config=config)


def _packed(folder: Path, kind: PackingKind, stored: torch.dtype = torch.bfloat16) -> ModelDir:
    _source(folder, stored)
    out = folder / "weights" / "small"
    resolved = Resolved(folder / "source", "source", "folder")
    quantize(resolved, out, kind, group=24, progress=Silent())
    return ModelDir.open(out)


def _facts(directory: ModelDir) -> Facts:
    return folder_facts("it", directory, Source())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_quantised_folder_takes_what_it_takes(
    tmp_path: Path, kind: PackingKind, dtype: Any
) -> None:
    directory = _packed(tmp_path, kind)
    here, *others = holdings(_facts(directory), Computing(dtype, keeps_narrow=False), FLOAT32)
    assert (here.dtype, here.matrices, here.flags) == (dtype, "as stored", ())
    assert here.weights == _held(load_decoder(directory, device="cpu", dtype=dtype))
    # It cannot be quantised again.
    assert [one.flags for one in others] == [
        (f"--dtype {one}",) for one in ("float32", "bfloat16", "float16") if one != dtype
    ]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16])
def test_quantising_while_loading_takes_what_it_takes(
    tmp_path: Path, kind: PackingKind, stored: torch.dtype
) -> None:
    directory = _source(tmp_path, stored)
    loaded = load_decoder(directory, device="cpu", quantize=kind)
    ways = holdings(_facts(directory), FLOAT32, FLOAT32)
    (way,) = [one for one in ways if one.flags == (f"--quantize {kind}",)]
    assert way.weights == _held(loaded)
    asked = holdings(_facts(directory), FLOAT32, FLOAT32, quantize=kind)[0]
    assert (asked.flags, asked.matrices, asked.weights) == ((), kind, way.weights)


def test_matrices_that_stay_in_16_bits(tmp_path: Path) -> None:
    directory = _source(tmp_path, torch.bfloat16)
    loaded = load_decoder(directory, device="cpu", kernels="on")
    here, explicit, *_ = holdings(_facts(directory), NARROW, NARROW)
    assert loaded.decoder.dtype == torch.float32
    assert (here.matrices, here.weights) == ("as stored", _held(loaded))
    assert explicit.flags == ("--dtype float32",)
    assert explicit.weights > here.weights
    # A file of float32 numbers has nothing to keep narrow.
    wide = _source(tmp_path / "wide", torch.float32)
    assert holdings(_facts(wide), NARROW, NARROW)[0].matrices == "float32"


@pytest.mark.parametrize("kind", KINDS)
def test_a_config_alone_is_taken_to_be_packed_as_usual(tmp_path: Path, kind: PackingKind) -> None:
    directory = _packed(tmp_path, kind)
    alone = holdings(config_facts("it", directory.config), FLOAT32, FLOAT32)[0]
    assert alone.weights == holdings(_facts(directory), FLOAT32, FLOAT32)[0].weights


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_reads_what_a_bench_counts(tmp_path: Path, kind: PackingKind) -> None:
    directory = _packed(tmp_path, kind)
    decoder = load_decoder(directory, device="cpu").decoder
    here = holdings(_facts(directory), FLOAT32, FLOAT32)[0]
    counted = forward_work(decoder.spec, new=1, element_bytes=4, held_in=decoder.bytes_a_number())
    assert sum(one.weight_bytes for one in counted) == read_per_token(decoder.spec, here.sizes)


@pytest.mark.parametrize("kind", KINDS)
def test_a_listing_counts_numbers_and_not_codes(
    tmp_path: Path, kind: PackingKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = _packed(tmp_path, kind)
    monkeypatch.setenv("LLMCLI_HOME", str(tmp_path))
    (found,) = [one for one in installed() if one.path == directory.path]
    assert found.problem is None
    assert found.parameters == sum(one.numel() for one in tiny_tensors().values())
    assert found.bytes >= (directory.path / "model.safetensors").stat().st_size


@pytest.mark.parametrize("kind", KINDS)
def test_a_summary_tells_bits_and_bytes(tmp_path: Path, kind: PackingKind) -> None:
    directory = _packed(tmp_path, kind)
    facts = _facts(directory)
    found = summarise(facts)
    size = sum(one.nbytes for one in directory.tensors().values())
    assert found.parameters == count_parameters(facts.spec)
    assert found.quantized_bits == (8 if kind == "int8" else 4)
    assert found.bits_per_parameter == 8 * size / found.parameters
    assert found.bytes_by_dtype is not None
    assert sum(found.bytes_by_dtype.values()) == size
    packed = sum(quantized_bytes(facts.spec, kind, group=24).values())
    assert size - packed == 2 * 5 * 64  # norms in bfloat16


def test_a_check_counts_codes_as_finite(tmp_path: Path) -> None:
    directory = _packed(tmp_path, "int4")
    found = check(_facts(directory), directory, values=True)
    count = len(directory.tensors())
    (told,) = [one for one in found.findings if one.about == "values"]
    assert told.text == f"{count} of {count} tensors are all finite"


def test_a_tree_keeps_layers_apart_that_are_stored_differently(tmp_path: Path) -> None:
    from llmcli.engine.kept_blocks import convert_kept

    # The second layer's matrices begin at another of the kinds.
    write_gguf(tmp_path / "m.gguf", kinds=["Q8_0"] * 8 + ["Q4_0"] * 7)
    convert_kept(tmp_path / "m.gguf", tmp_path / "kept", dtype=None, progress=Silent())
    tree = build_tree(_facts(ModelDir.open(tmp_path / "kept")))
    (layers,) = [node for node in tree.root.children if node.name == "layers"]
    assert [(node.name, node.repeat) for node in layers.children] == [("0", 1), ("1", 1)]
    kinds = [
        {w.stored[0].dtype for w in node.children[1].children[0].weights}
        for node in layers.children
    ]
    assert kinds == [{"I8"}, {"U8"}]
