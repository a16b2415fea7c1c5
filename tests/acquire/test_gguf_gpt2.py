"""GPT-2 out of GGUF: projections turned round, learned positions, LayerNorm with biases."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer, GPT2Config

from llmcli.acquire.gguf_import import convert
from llmcli.errors import CheckpointError

from .gguf_models import converted, logits, near, tiny, write_model
from .ggufs import byte_vocab
from .test_gguf_tokenizer import TEXTS

# transformers' loader reads no context, inner size or vocabulary size of a GPT-2 file: the first
# two are its defaults, the last is the number of tokens.
CONTEXT = 1024
VOCAB = len(byte_vocab().tokens)
METADATA: dict[str, Any] = {
    "context_length": CONTEXT,
    "embedding_length": 64,
    "feed_forward_length": 256,
    "block_count": 2,
    "attention.head_count": 4,
    "attention.layer_norm_epsilon": 1e-5,
}


def gpt2(**changes: Any) -> Any:
    sizes = {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": CONTEXT}
    ids = {"bos_token_id": 0, "eos_token_id": 1}
    return tiny(GPT2Config(vocab_size=VOCAB, **sizes | ids | changes))


def turned(name: str, values: np.ndarray) -> np.ndarray:
    """As the format's converter stores it."""
    return values.T if "c_" in name and name.endswith(".weight") else values


@pytest.mark.parametrize(("tied", "kind"), [(True, "F32"), (True, "Q8_0"), (False, "F32")])
def test_logits_equal_transformers_gguf_loader(tmp_path: Path, tied: bool, kind: str):
    model = gpt2(tie_word_embeddings=tied)
    write_model(tmp_path / "m.gguf", model, "gpt2", METADATA, change=turned, kind=kind)
    ours = converted(tmp_path)
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file="m.gguf", dtype=torch.float32)
    assert near(logits(ours), logits(theirs))
    assert ours.config.tie_word_embeddings is tied
    if kind == "F32":
        assert torch.equal(logits(ours), logits(model))
        assert torch.equal(ours.transformer.wpe.weight, model.transformer.wpe.weight)


def test_sizes_that_are_not_the_defaults(tmp_path: Path):
    model = gpt2(n_positions=32, n_inner=96, layer_norm_epsilon=1e-3)
    changed = {"context_length": 32, "feed_forward_length": 96}
    changed |= {"attention.layer_norm_epsilon": 1e-3}
    write_model(tmp_path / "m.gguf", model, "gpt2", METADATA | changed, change=turned)
    assert torch.equal(logits(converted(tmp_path)), logits(model))
    config = json.loads((tmp_path / "out/config.json").read_text())
    assert (config["n_positions"], config["n_inner"]) == (32, 96)
    assert config["activation_function"] == "gelu_new"
    assert config["scale_attn_by_inverse_layer_idx"] is False


def test_every_tensor_comes_back_bit_for_bit(tmp_path: Path):
    model = gpt2(n_positions=32)
    metadata = METADATA | {"context_length": 32}
    write_model(tmp_path / "m.gguf", model, "gpt2", metadata, change=turned)
    convert(tmp_path / "m.gguf", tmp_path / "out", dtype="float32")
    back = load_file(tmp_path / "out/model.safetensors")
    state = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    assert back.keys() | {"lm_head.weight"} == state.keys()
    for name, values in back.items():
        np.testing.assert_array_equal(values, state[name], err_msg=name)


@pytest.mark.parametrize(
    ("extra", "without", "match"),
    [
        ({"attention.head_count_kv": 2}, "", "2 key-value heads for 4 heads"),
        ({"context_length": 32}, "", r"position_embd\.weight has the shape \[1024, 64\].*\[32"),
        ({}, "blk.1.attn_qkv.bias", r"lacks tensors: blk\.1\.attn_qkv\.bias"),
        ({}, "output_norm.bias", r"lacks tensors: output_norm\.bias"),
        ({"attention.scale": 0.5}, "", r"attention\.scale to 0\.5"),
        ({"attention.head_count": 5}, "", "5 heads that do not divide"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path: Path, extra: Any, without: str, match: str):
    metadata = METADATA | extra
    write_model(tmp_path / "m.gguf", gpt2(), "gpt2", metadata, change=turned, without=[without])
    with pytest.raises(CheckpointError, match=match):
        convert(tmp_path / "m.gguf", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_tokenizer_is_that_of_transformers_loader(tmp_path: Path):
    write_model(tmp_path / "m.gguf", gpt2(), "gpt2", METADATA, change=turned)
    convert(tmp_path / "m.gguf", tmp_path / "out")
    ours = AutoTokenizer.from_pretrained(tmp_path / "out")
    theirs = AutoTokenizer.from_pretrained(tmp_path, gguf_file="m.gguf")
    for text in TEXTS:
        assert ours(text).input_ids == theirs(text).input_ids, text
