"""Qwen2 and Qwen3 out of GGUF: the model that went in, and what transformers' loader makes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen2Config, Qwen3Config

from llmcli.acquire.gguf_import import convert
from llmcli.errors import CheckpointError

from .gguf_models import VOCAB, converted, logits, near, tiny, write_model
from .ggufs import byte_vocab

SIZES = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-6,
}
METADATA: dict[str, Any] = {
    "context_length": 128,
    "embedding_length": 64,
    "feed_forward_length": 96,
    "block_count": 3,
    "attention.head_count": 4,
    "attention.head_count_kv": 2,
    "attention.layer_norm_rms_epsilon": 1e-6,
    "rope.freq_base": 1000000.0,
    "vocab_size": VOCAB,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}


def qwen2(**changes: Any) -> Any:
    rope = {"rope_type": "default", "rope_theta": 1e6} | changes.pop("rope", {})
    return tiny(Qwen2Config(**SIZES, rope_parameters=rope, **changes))


def qwen3(**changes: Any) -> Any:
    rope = {"rope_type": "default", "rope_theta": 1e6}
    return tiny(Qwen3Config(**SIZES, rope_parameters=rope, **changes))


@pytest.mark.parametrize(
    ("arch", "tied", "kind"),
    [("qwen2", True, "F32"), ("qwen2", False, "Q8_0"), ("qwen3", True, "Q8_0")],
)
def test_logits_equal_transformers_gguf_loader(tmp_path: Path, arch: str, tied: bool, kind: str):
    # transformers' loader does not read a Qwen3 file's head size; 128 is its default.
    model = (
        qwen2(tie_word_embeddings=tied)
        if arch == "qwen2"
        else qwen3(tie_word_embeddings=tied, head_dim=128)
    )
    extra = {} if arch == "qwen2" else {"attention.key_length": 128, "attention.value_length": 128}
    write_model(tmp_path / "m.gguf", model, arch, METADATA | extra, kind=kind)
    ours = converted(tmp_path)
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file="m.gguf", dtype=torch.float32)
    assert near(logits(ours), logits(theirs))
    assert ours.config.tie_word_embeddings is tied
    if kind == "F32":
        assert torch.equal(logits(ours), logits(model))


@pytest.mark.parametrize("bias", [False, True])
def test_qwen3_with_a_head_size_of_its_own_is_the_model_that_went_in(tmp_path: Path, bias: bool):
    model = qwen3(head_dim=24, tie_word_embeddings=False, attention_bias=bias)
    heads = {"attention.key_length": 24, "attention.value_length": 24}
    write_model(tmp_path / "m.gguf", model, "qwen3", METADATA | heads)
    ours = converted(tmp_path)
    assert torch.equal(logits(ours), logits(model))
    config = json.loads((tmp_path / "out/config.json").read_text())
    assert (config["head_dim"], config["attention_bias"]) == (24, bias)


def test_yarn_is_the_model_that_went_in(tmp_path: Path):
    model = qwen2(rope=YARN)
    scaling = {
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": 4.0,
        "rope.scaling.original_context_length": 32,
    }
    write_model(tmp_path / "m.gguf", model, "qwen2", METADATA | scaling)
    assert torch.equal(logits(converted(tmp_path)), logits(model))
    plain = qwen2()
    assert not near(logits(plain), logits(model))


def test_config_says_what_the_file_cannot_hold(tmp_path: Path):
    write_model(tmp_path / "m.gguf", qwen2(), "qwen2", METADATA)
    convert(tmp_path / "m.gguf", tmp_path / "out")
    config = json.loads((tmp_path / "out/config.json").read_text())
    assert config["use_sliding_window"] is False
    assert config["sliding_window"] is None
    assert "head_dim" not in config
    assert config["rope_theta"] == 1e6
    assert config["rms_norm_eps"] == 1e-6


@pytest.mark.parametrize(
    ("extra", "match"),
    [
        ({"attention.sliding_window": 32}, r"sets qwen2\.attention\.sliding_window to 32"),
        ({"attention.key_length": 32, "attention.value_length": 32}, "hidden size 64 over 4"),
        ({"rope.dimension_count": 8}, "dimension_count is 8"),
        ({"rope.dimension_sections": [1, 2]}, r"not known: qwen2\.rope\.dimension_sections"),
        ({"rope.scaling.type": "yarn"}, "factor is 0, below 1"),
        ({"rope.scaling.type": "x\x1b[m"}, r"rotary scaling 'x\\x1b\[m'"),
        ({"rope.scaling.attn_factor": 1.5}, "attn_factor is 1.5, not 1"),
        ({"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0}, "no qwen2.rope.*original"),
        ({"expert_count": 8}, "mixture of 8 experts"),
        ({"attention.causal": False}, r"attention\.causal to False"),
        ({"logit_scale": 0.5}, r"logit_scale to 0\.5"),
    ],
)
def test_what_cannot_be_mapped_exactly_is_refused(tmp_path: Path, extra: Any, match: str):
    write_model(tmp_path / "m.gguf", qwen2(), "qwen2", METADATA | extra)
    with pytest.raises(CheckpointError, match=match):
        convert(tmp_path / "m.gguf", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("lost", "added", "match"),
    [
        ("blk.1.attn_k.bias", None, r"lacks tensors: blk\.1\.attn_k\.bias"),
        ("none", "rope_freqs.weight", r"no place for: rope_freqs\.weight"),
        ("none", "blk.0.attn_q_norm.weight", r"no place for: blk\.0\.attn_q_norm"),
    ],
)
def test_tensors_of_another_variant_are_refused(
    tmp_path: Path, lost: str, added: str | None, match: str
):
    more = {added: np.ones(8, np.float32)} if added else {}
    write_model(tmp_path / "m.gguf", qwen2(), "qwen2", METADATA, more=more, without=[lost])
    with pytest.raises(CheckpointError, match=match):
        convert(tmp_path / "m.gguf", tmp_path / "out")


def test_window_that_covers_the_context_is_no_window(tmp_path: Path):
    write_model(tmp_path / "m.gguf", qwen2(), "qwen2", METADATA | {"attention.sliding_window": 128})
    convert(tmp_path / "m.gguf", tmp_path / "out")


def test_tokenizer_is_that_of_transformers_loader(tmp_path: Path):
    vocab = byte_vocab()
    vocab.pre = "qwen2"
    write_model(tmp_path / "m.gguf", qwen2(), "qwen2", METADATA, vocab=vocab)
    convert(tmp_path / "m.gguf", tmp_path / "out")
    ours = AutoTokenizer.from_pretrained(tmp_path / "out")
    theirs = AutoTokenizer.from_pretrained(tmp_path, gguf_file="m.gguf")
    for text in ("Hello world, it's 2024", "hel  lo\n\n x", "<think>你好", "<s>he</s>"):
        assert ours(text).input_ids == theirs(text).input_ids
