"""A GGUF file whose blocks are kept computes what the same file blown up to floats computes."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from llmcli.acquire.gguf_import import convert
from llmcli.acquire.progress import Silent
from llmcli.cache import make_cache
from llmcli.checkpoint.directory import ModelDir
from llmcli.engine.accelerate import KernelChoice
from llmcli.engine.kept_blocks import KeptBlocks, convert_kept
from llmcli.engine.load import load_decoder
from llmcli.errors import CheckpointError, UsageError
from llmcli.model import Decoder
from llmcli.model.linear import Weighted
from llmcli.spec import matrices, packable
from tests.acquire import test_gguf_gpt2, test_gguf_phi3, test_gguf_qwen
from tests.acquire.gguf_models import write_model
from tests.acquire.ggufs import Shape, random_tensors, write_gguf
from tests.cli.drive import run_here

IDS = torch.tensor([[1, 5, 9, 200, 13, 77, 3, 3, 250, 41, 8, 60]])
ARGS = ["--strategy", "greedy", "--json", "--ignore-eos", "-n", "24", "he said"]
FOUR_BITS = ["Q4_0", "Q4_1"]


def _kept(folder: Path, **options: Any) -> KeptBlocks:
    settings = {"dtype": "float32", "progress": Silent(), **options}
    return convert_kept(folder / "m.gguf", folder / "kept", **settings)


def _blown_up(folder: Path) -> None:
    convert(folder / "m.gguf", folder / "plain", dtype="float32")


def _loaded(folder: Path) -> Decoder:
    return load_decoder(ModelDir.open(folder), device="cpu").decoder


def _logits(decoder: Decoder) -> Tensor:
    with torch.inference_mode():
        logits: Tensor = decoder(IDS, last_only=False)
    return logits


def _same(folder: Path) -> set[str]:
    """Both folders' numbers are equal, and so are their logits; the names that are packed."""
    kept, plain = _loaded(folder / "kept"), _loaded(folder / "plain")
    packed = set()
    for name in matrices(plain.spec):
        path = name.removesuffix(".weight")
        one, other = kept.get_submodule(path), plain.get_submodule(path)
        assert isinstance(one, Weighted)
        assert isinstance(other, Weighted)
        assert torch.equal(one.matrix().float(), other.matrix()), name
        packed |= {name} if one.packed is not None else set()
    others = dict(kept.named_parameters())
    for name, parameter in plain.named_parameters():
        if name in others:
            assert torch.equal(others[name], parameter), name
    wanted = _logits(plain)
    assert wanted.std() > 0.3
    torch.testing.assert_close(_logits(kept), wanted, atol=2e-5, rtol=2e-5)
    return packed


@pytest.mark.parametrize(
    ("shape", "kinds"),
    [
        (Shape(), ["Q8_0"]),
        (Shape(tied=False), ["Q8_0"]),
        (Shape(), ["Q4_0"]),
        (Shape(tied=False, kv_heads=1), ["Q4_1"]),
        (Shape(heads=8, kv_heads=4), ["Q4_0", "Q4_1", "Q5_0", "Q8_0"]),
        (Shape(hidden=256, inner=256), ["Q6_K"]),
    ],
    ids=["q8_0", "q8_0-untied", "q4_0", "q4_1-untied", "all-of-them", "q6_k"],
)
def test_llama(tmp_path: Path, shape: Shape, kinds: list[str]) -> None:
    write_gguf(tmp_path / "m.gguf", shape=shape, kinds=kinds)
    found = _kept(tmp_path)
    _blown_up(tmp_path)
    packed = _same(tmp_path)
    assert packed == packable(_loaded(tmp_path / "plain").spec)
    assert sum(found.kept.values()) == len(packed)
    assert found.kept.keys() == set(kinds)
    assert not found.plain
    form = json.loads((tmp_path / "kept/config.json").read_text())["llmcli_quantization"]
    assert form["bits"] == (4 if kinds[0] in FOUR_BITS else 8)


@pytest.mark.parametrize("kind", ["Q8_0", "Q6_K", "Q5_0", "Q4_0", "Q4_1"])
@pytest.mark.parametrize("tokens", [1, 3, 40])
def test_kernels_read_kept_blocks(tmp_path: Path, kind: str, tokens: int) -> None:
    """Bytes of any value: codes of -128, scales below zero, minima above it."""
    write_gguf(tmp_path / "m.gguf", shape=Shape(hidden=256, inner=512), kinds=[kind], drawn=True)
    _kept(tmp_path)
    _blown_up(tmp_path)
    kept, plain = (
        _stepped(tmp_path / name, choice, tokens)
        for name, choice in (("kept", "on"), ("plain", "off"))
    )
    assert plain.std() > 0.3
    torch.testing.assert_close(kept, plain, atol=1e-4 * float(plain.std()), rtol=1e-4)


def _stepped(folder: Path, choice: KernelChoice, tokens: int) -> Tensor:
    """Logits [T + 1,V] of so many tokens at once and of one more behind them."""
    decoder = load_decoder(ModelDir.open(folder), device="cpu", kernels=choice).decoder
    assert decoder.fused == (choice == "on")
    cache = make_cache("growing", decoder.spec, planned=tokens + 1)
    ids = torch.arange(tokens)[None] * 7 % 288
    with torch.inference_mode():
        pieces = [decoder(one, cache, last_only=False)[0] for one in (ids, ids[:, :1])]
    return torch.cat(pieces)


def test_what_cannot_be_kept_becomes_floats_beside_it(tmp_path: Path) -> None:
    kinds = ["Q8_0", "F16", "Q5_1", "BF16", "Q4_0"]
    write_gguf(tmp_path / "m.gguf", kinds=kinds)
    found = _kept(tmp_path)
    _blown_up(tmp_path)
    _same(tmp_path)
    names = [name for name, values in random_tensors(Shape()).items() if values.ndim == 2]
    used = Counter(kinds[at % len(kinds)] for at in range(len(names)))
    assert found.kept == {kind: used[kind] for kind in ("Q8_0", "Q4_0")}
    assert found.plain == {kind: used[kind] for kind in ("F16", "Q5_1", "BF16")}


def test_biases_on_queries_and_keys(tmp_path: Path) -> None:
    model = test_gguf_qwen.qwen2(tie_word_embeddings=False)
    write_model(tmp_path / "m.gguf", model, "qwen2", test_gguf_qwen.METADATA, kind="Q4_0")
    _kept(tmp_path)
    _blown_up(tmp_path)
    assert _same(tmp_path) == packable(_loaded(tmp_path / "plain").spec)


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_1"])
def test_fused_projections_are_cut_between_rows(tmp_path: Path, kind: str) -> None:
    model = test_gguf_phi3.phi3(tie_word_embeddings=True)
    write_model(tmp_path / "m.gguf", model, "phi3", test_gguf_phi3.METADATA, kind=kind)
    _kept(tmp_path)
    _blown_up(tmp_path)
    assert _same(tmp_path) == packable(_loaded(tmp_path / "plain").spec)


@pytest.mark.parametrize(("width", "whole"), [(64, True), (48, False)], ids=["even", "odd"])
def test_turned_projections_and_widths_that_have_no_blocks(
    tmp_path: Path, width: int, whole: bool
) -> None:
    model = test_gguf_gpt2.gpt2(n_positions=64, n_embd=width, n_inner=96)
    sizes = {"context_length": 64, "embedding_length": width, "feed_forward_length": 96}
    write_model(
        tmp_path / "m.gguf",
        model,
        "gpt2",
        test_gguf_gpt2.METADATA | sizes,
        change=test_gguf_gpt2.turned,
        kind="Q4_0",
    )
    found = _kept(tmp_path)
    _blown_up(tmp_path)
    packed, able = _same(tmp_path), packable(_loaded(tmp_path / "plain").spec)
    down = {f"layers.{layer}.mlp.down_proj.weight" for layer in range(2)}
    assert packed == (able if whole else down)
    assert found.plain == ({} if whole else {"F32": len(able) - 2})


def test_several_files(tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf", kinds=["Q8_0", "Q4_0"])
    _kept(tmp_path, most_bytes=20_000)
    _blown_up(tmp_path)
    _same(tmp_path)
    assert len(list((tmp_path / "kept").glob("*.safetensors"))) > 1


def test_numbers_that_are_not_quantised_keep_their_own_precision(tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf", kinds=["Q8_0", "BF16", "Q5_1"])
    _kept(tmp_path, dtype=None)
    decoder = load_decoder(ModelDir.open(tmp_path / "kept"), device="cpu", kernels="off")
    stored = {one.name: one.dtype for one in ModelDir.open(tmp_path / "kept").tensors().values()}
    assert stored["norm.weight"] == "F32"
    assert stored["layers.0.attn.q_proj.weight"] == "BF16"
    assert stored["layers.0.attn.k_proj.weight"] == "F16"
    assert decoder.decoder.dtype == torch.float32


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0", "Q4_1"])
def test_generate_says_the_same(tmp_path: Path, kind: str) -> None:
    write_gguf(tmp_path / "m.gguf", kinds=[kind])
    kept = run_here(
        ["convert", str(tmp_path / "m.gguf"), str(tmp_path / "kept"), "--keep-quantized"]
    )
    assert kept.code == 0, kept.err
    assert f"matrices kept as they are: 15 of {kind}" in kept.err
    assert kept.out == f"{tmp_path / 'kept'}\n"
    _blown_up(tmp_path)
    said = [
        json.loads(run_here(["generate", "-m", str(tmp_path / name), *ARGS]).out)
        for name in ("kept", "plain")
    ]
    assert said[0]["ids"] == said[1]["ids"]
    assert len(said[0]["ids"]) == 24
    assert len(set(said[0]["ids"])) > 1
    assert said[0]["logprobs"] == pytest.approx(said[1]["logprobs"], abs=1e-4)


def test_nothing_to_keep_is_refused(tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf", kinds=["F16"])
    with pytest.raises(UsageError, match=r"m\.gguf holds no blocks that can be kept.* F16"):
        _kept(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["m.gguf"]


def test_a_folder_that_holds_something_is_left_alone(tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf", kinds=["Q8_0"])
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept/mine").touch()
    with pytest.raises(UsageError, match="holds files already"):
        _kept(tmp_path)


def test_a_bad_block_leaves_nothing(tmp_path: Path) -> None:
    tensors = random_tensors(Shape())
    tensors["blk.1.ffn_up.weight"][0, :2] = [2e6, -2e6]
    with np.errstate(over="ignore"):
        write_gguf(tmp_path / "m.gguf", kinds=["Q4_0"], tensors=tensors)
    with pytest.raises(CheckpointError, match=r"blk\.1\.ffn_up"):
        _kept(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["m.gguf"]
