"""Imported weights against the model they came from, and against transformers' own loader."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from safetensors.torch import load_file as load_torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from llmcli.acquire.gguf.rope import llama3_factors
from llmcli.acquire.gguf.write import encode
from llmcli.acquire.gguf_import import convert
from llmcli.errors import CheckpointError

from .ggufs import Shape, permute, random_tensors, write_gguf
from .recorder import Recorder

IDS = torch.tensor([[1, 5, 9, 200, 13, 77, 3, 3, 250, 41]])


def logits(model: torch.nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return model.eval()(IDS).logits


@pytest.mark.parametrize(
    ("shape", "kinds"),
    [
        (Shape(), ["F32"]),
        (Shape(tied=False, kv_heads=1, theta=500000.0, eps=1e-6), ["F16", "BF16"]),
        (Shape(heads=8, kv_heads=4), ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"]),
        (Shape(kv_heads=4), ["Q8_0"]),
    ],
    ids=["f32-grouped", "untied-16bit", "quantised", "no-groups"],
)
def test_logits_equal_transformers_gguf_loader(tmp_path: Path, shape: Shape, kinds: list[str]):
    file = write_gguf(tmp_path / "m.gguf", shape=shape, kinds=kinds)
    convert(file, tmp_path / "out", dtype="float32", progress=Recorder())
    ours = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype=torch.float32)
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file="m.gguf", dtype=torch.float32)
    wanted = logits(theirs)
    assert wanted.std() > 0.3
    assert (logits(ours) - wanted).abs().max() < 1e-4 * wanted.std()
    assert ours.config.rms_norm_eps == shape.eps
    assert ours.config.tie_word_embeddings is shape.tied


@pytest.mark.parametrize("bias", [False, True])
def test_every_tensor_comes_back_bit_for_bit(tmp_path: Path, bias: bool):
    shape = Shape(tied=False)
    config = LlamaConfig(
        vocab_size=shape.vocab,
        hidden_size=shape.hidden,
        intermediate_size=shape.inner,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        attention_bias=bias,
        mlp_bias=bias,
    )
    model = LlamaForCausalLM(config)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter)
    state = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    write_gguf(
        tmp_path / "m.gguf",
        shape=shape,
        tensors={gguf_name(name): stored(name, value, shape) for name, value in state.items()},
    )
    convert(tmp_path / "m.gguf", tmp_path / "out", dtype="float32")
    back = load_file(tmp_path / "out" / "model.safetensors")
    assert back.keys() == state.keys()
    for name, value in state.items():
        np.testing.assert_array_equal(back[name], value, err_msg=name)
    made = json.loads((tmp_path / "out" / "config.json").read_text())
    assert (made["attention_bias"], made["mlp_bias"]) == (bias, bias)


def gguf_name(name: str) -> str:
    words = {
        "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
        "model.layers": "blk", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
        "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
        "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    }  # fmt: skip
    for theirs, ours in words.items():
        name = name.replace(theirs, ours)
    return name


def stored(name: str, value: np.ndarray, shape: Shape) -> np.ndarray:
    if "q_proj" in name:
        return permute(value, shape.heads)
    return permute(value, shape.kv_heads) if "k_proj" in name else value


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_dtypes_round_as_torch_does(tmp_path: Path, dtype: str):
    tensors = random_tensors(Shape())
    tensors["output_norm.weight"][:4] = [1e-7, 65504.0, -1.00390625, 3.3895314e-3]
    write_gguf(tmp_path / "m.gguf", tensors=tensors)
    convert(tmp_path / "m.gguf", tmp_path / "out", dtype=dtype)
    made = load_torch(tmp_path / "out" / "model.safetensors")
    wanted = torch.from_numpy(tensors["output_norm.weight"]).to(getattr(torch, dtype))
    assert torch.equal(made["model.norm.weight"], wanted)
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["torch_dtype"] == dtype


def test_bfloat16_ties_go_to_even():
    values = np.array([1 + 2**-8, 1 + 3 * 2**-8, -1 - 2**-8, 3.4e38, 0.0], np.float32)
    wanted = torch.from_numpy(values).to(torch.bfloat16).view(torch.int16).numpy()
    np.testing.assert_array_equal(encode(values, "bfloat16").view(np.int16), wanted)


def test_value_beyond_float16_is_refused_by_name(tmp_path: Path):
    tensors = random_tensors(Shape())
    tensors["blk.1.ffn_up.weight"][3, 5] = 70000.0
    write_gguf(tmp_path / "m.gguf", tensors=tensors)
    with pytest.raises(CheckpointError, match=r"layers\.1\.mlp\.up_proj.* 70000.*65504") as caught:
        convert(tmp_path / "m.gguf", tmp_path / "out")
    assert "bfloat16" in caught.value.hint
    assert list((tmp_path / "out").iterdir()) == []
    convert(tmp_path / "m.gguf", tmp_path / "out", dtype="bfloat16")


def test_a_value_that_is_no_number_is_refused(tmp_path: Path):
    tensors = random_tensors(Shape())
    tensors["blk.0.ffn_up.weight"][0, 0] = np.nan
    write_gguf(tmp_path / "m.gguf", tensors=tensors)
    with pytest.raises(CheckpointError, match=r"layers\.0\.mlp\.up_proj"):
        convert(tmp_path / "m.gguf", tmp_path / "out", dtype="float32")


def test_linear_scaling_and_head_dim_reach_the_config(tmp_path: Path):
    extra = {
        "llama.rope.scaling.type": "linear",
        "llama.rope.scaling.factor": 4.0,
        "llama.attention.key_length": 16,
        "llama.attention.value_length": 16,
    }
    write_gguf(tmp_path / "m.gguf", extra=extra)
    convert(tmp_path / "m.gguf", tmp_path / "out")
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["rope_scaling"] == {"rope_type": "linear", "factor": 4.0}
    assert config["head_dim"] == 16


def test_llama3_scaling_is_found_again_exactly(tmp_path: Path):
    shape = Shape(theta=500000.0, hidden=512, heads=4, kv_heads=2, vocab=288, layers=1)
    scaling = {
        "rope_type": "llama3",
        "rope_theta": 500000.0,
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    oracle = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=32,
            hidden_size=512,
            num_attention_heads=4,
            num_hidden_layers=1,
            intermediate_size=32,
            max_position_embeddings=131072,
            rope_parameters=scaling,
        )
    )
    plain = 500000.0 ** -(torch.arange(0, 128, 2) / 128)
    factors = (plain / oracle.model.rotary_emb.inv_freq).numpy().astype(np.float32)
    assert len(set(factors.tolist())) > 5
    tensors = random_tensors(shape) | {"rope_freqs.weight": factors}
    write_gguf(tmp_path / "m.gguf", shape=shape, tensors=tensors)
    convert(tmp_path / "m.gguf", tmp_path / "out")
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    del scaling["rope_theta"]
    assert config["rope_scaling"] == scaling

    tensors["rope_freqs.weight"] = factors * np.float32(1.01)
    write_gguf(tmp_path / "m.gguf", shape=shape, tensors=tensors)
    with pytest.raises(CheckpointError, match=r"rope_freqs\.weight fits no published"):
        convert(tmp_path / "m.gguf", tmp_path / "out")


def test_llama3_factors_are_one_at_high_frequencies():
    factors = llama3_factors(128, 500000.0, factor=8.0, low=1.0, high=4.0, original=8192)
    assert factors[0] == 1.0
    assert factors[-1] == 8.0


def test_progress_counts_every_byte(tmp_path: Path):
    write_gguf(tmp_path / "m.gguf")
    told = Recorder()
    convert(tmp_path / "m.gguf", tmp_path / "out", progress=told)
    [(label, total, done)] = told.bars
    assert label == "converting"
    assert done == total
    assert total == sum(v.nbytes for v in load_file(tmp_path / "out/model.safetensors").values())


def test_key_that_is_not_read_is_told(tmp_path: Path):
    write_gguf(tmp_path / "m.gguf", extra={"llama.attention.new\x1bthing": 7})
    told = Recorder()
    convert(tmp_path / "m.gguf", tmp_path / "out", progress=told)
    assert any("llama.attention.new\\x1bthing" in line for line in told.notices)
