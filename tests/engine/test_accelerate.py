"""Which decoders run in kernels, and what is said of those that do not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from llmcli.checkpoint.directory import ModelDir
from llmcli.engine import accelerate
from llmcli.engine.accelerate import start_kernels
from llmcli.engine.load import load_decoder
from llmcli.errors import UsageError
from llmcli.kernels.team import Team
from llmcli.spec import DecoderSpec, LayerSpec, Rope
from tests.families.rows import ROWS
from tests.oracle import build

STORIES = Path(__file__).parents[2] / "weights" / "stories260k"
CPU = torch.device("cpu")
SPEC = DecoderSpec(
    vocab_size=100_000,
    hidden_size=128,
    intermediate_size=256,
    num_heads=4,
    num_kv_heads=2,
    head_dim=32,
    max_positions=64,
    layers=(LayerSpec(rope=Rope(theta=10000.0, dim=32)),),
    norm="rms",
    norm_eps=1e-5,
    mlp="gated",
    activation="silu",
    attn_scale=32**-0.5,
    tie_embeddings=True,
)


def test_a_large_decoder_on_a_cpu_gets_kernels_and_a_small_one_does_not() -> None:
    assert isinstance(start_kernels("auto", SPEC, CPU, torch.float32), Team)
    small = replace(SPEC, vocab_size=1000)
    assert start_kernels("auto", small, CPU, torch.float32) == "the model is small"
    assert isinstance(start_kernels("on", small, CPU, torch.float32), Team)
    assert start_kernels("off", SPEC, CPU, torch.float32) == "switched off"


def test_other_devices_and_dtypes_and_a_missing_llvmlite_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mps = torch.device("mps")
    assert start_kernels("auto", SPEC, mps, torch.float32) == "the device is mps"
    assert start_kernels("auto", SPEC, CPU, torch.bfloat16) == "it computes in bfloat16"
    monkeypatch.setattr(accelerate, "missing", lambda: "llvmlite is not installed")
    assert start_kernels("auto", SPEC, CPU, torch.float32) == "llvmlite is not installed"
    with pytest.raises(UsageError, match="llvmlite is not installed"):
        start_kernels("on", SPEC, CPU, torch.float32)


@pytest.fixture(scope="module")
def half(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """stories260k in float16."""
    folder = tmp_path_factory.mktemp("half")
    for file in STORIES.iterdir():
        if file.suffix == ".json":
            (folder / file.name).write_bytes(file.read_bytes())
    tensors = load_file(STORIES / "model.safetensors")
    save_file({name: one.half() for name, one in tensors.items()}, folder / "model.safetensors")
    return folder


@pytest.mark.parametrize("choice", ["on", "off"])
def test_sixteen_bit_matrices_stay_only_where_kernels_read_them(half: Path, choice) -> None:
    loaded = load_decoder(ModelDir.open(half), device="cpu", kernels=choice)
    decoder = loaded.decoder
    assert decoder.dtype == torch.float32
    stays = torch.float16 if choice == "on" else torch.float32
    assert {decoder.embed_tokens.dtype, decoder.layers[0].attn.q_proj.dtype} == {stays}
    assert decoder.layers[0].attn_norm.weight.dtype == torch.float32
    assert ("weights float16" in loaded.kernels) == (choice == "on")


def test_an_asked_dtype_is_what_the_weights_are_in(half: Path) -> None:
    loaded = load_decoder(ModelDir.open(half), device="cpu", dtype="float32", kernels="on")
    assert loaded.decoder.embed_tokens.dtype == torch.float32


def test_logits_are_those_of_float32_weights(half: Path) -> None:
    ids = torch.tensor([[1, 5, 9, 20]])
    with torch.inference_mode():
        got, wide = (
            load_decoder(ModelDir.open(half), device="cpu", kernels=choice).decoder(ids)
            for choice in ("on", "off")
        )
    torch.testing.assert_close(got, wide, rtol=1e-5, atol=1e-4)


def test_kernels_that_are_asked_for_and_cannot_run_whole_steps_are_told_of(tmp_path: Path) -> None:
    (row,) = (row for row in ROWS if row.name == "mixtral-top-2")
    folder = ModelDir.open(build(row, tmp_path).folder)
    short = "--kernels on: only its products run in compiled kernels (sparse experts)"
    for choice in ("on", "auto", "off"):
        told = load_decoder(folder, device="cpu", dtype="float32", kernels=choice).warnings
        assert (short in told) == (choice == "on")
