"""Gemma 3 out of GGUF: norms less 1, mixed windows, two rotary bases, tokens of spaces."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, Gemma3TextConfig

from llmcli.acquire.gguf.architectures import ARCHITECTURES
from llmcli.acquire.gguf.reader import GgufFile, StoredTensor
from llmcli.acquire.gguf_import import convert
from llmcli.errors import CheckpointError

from .gguf_models import VOCAB, converted, is_norm, logits, near, tiny, write_model
from .ggufs import Vocab
from .test_gguf_tokenizer import plain_ids

LAYERS = 7
METADATA: dict[str, Any] = {
    "context_length": 128,
    "embedding_length": 64,
    "feed_forward_length": 96,
    "block_count": LAYERS,
    "attention.head_count": 4,
    "attention.head_count_kv": 2,
    "attention.key_length": 32,
    "attention.value_length": 32,
    "attention.layer_norm_rms_epsilon": 1e-6,
    "attention.sliding_window": 5,
    "rope.freq_base": 1000000.0,
    "vocab_size": VOCAB,
}
LINEAR = {"rope.scaling.type": "linear", "rope.scaling.factor": 8.0}


def gemma3(*, factor: float = 1.0, local: float = 1e4, **changes: Any) -> Any:
    scaled = {"rope_type": "linear", "factor": factor} if factor != 1.0 else {}
    sizes = {
        "vocab_size": VOCAB,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "query_pre_attn_scalar": 32,
        "max_position_embeddings": 128,
        "sliding_window": 5,
        "bos_token_id": 0,
        "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": 1e6} | scaled,
            "sliding_attention": {"rope_type": "default", "rope_theta": local},
        },
    }
    return tiny(Gemma3TextConfig(**sizes | changes), norm=0.0)


def one_added(name: str, values: np.ndarray) -> np.ndarray:
    """As the format's converter stores it."""
    return values + np.float32(1.0) if is_norm(name) else values


@pytest.mark.parametrize("kind", ["F32", "Q8_0"])
def test_logits_equal_transformers_gguf_loader(tmp_path: Path, kind: str):
    # transformers' loader does not read a file's query scale: 256 is its default.
    few = {"num_attention_heads": 2, "num_key_value_heads": 1}
    model = gemma3(head_dim=256, query_pre_attn_scalar=256, **few)
    metadata = METADATA | {"attention.key_length": 256, "attention.value_length": 256}
    metadata |= {"attention.head_count": 2, "attention.head_count_kv": 1}
    write_model(tmp_path / "m.gguf", model, "gemma3", metadata, change=one_added, kind=kind)
    ours = converted(tmp_path)
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file="m.gguf", dtype=torch.float32)
    assert near(logits(ours), logits(theirs))
    if kind == "F32":
        assert near(logits(ours), logits(model))


@pytest.mark.parametrize(
    ("changes", "extra"),
    [
        ({}, {}),
        ({"factor": 8.0}, LINEAR),
        ({"local": 5e4}, {"rope.freq_base_swa": 50000.0}),
        (
            {"final_logit_softcapping": 4.0, "attn_logit_softcapping": 2.0},
            {"final_logit_softcapping": 4.0, "attn_logit_softcapping": 2.0},
        ),
        ({"tie_word_embeddings": False}, {}),
        (
            {"layer_types": ["sliding_attention", "full_attention"] * 3 + ["sliding_attention"]},
            {"attention.sliding_window_pattern": 2},
        ),
        (
            {"layer_types": ["full_attention", *["sliding_attention"] * 6]},
            {"attention.sliding_window_pattern": [False] + [True] * 6},
        ),
    ],
    ids=["plain", "linear", "local-base", "softcaps", "untied", "period", "each-layer"],
)
def test_the_model_that_went_in(tmp_path: Path, changes: Any, extra: Any):
    model = gemma3(**changes)
    # Softcapped scores are computed only by the plain path.
    if "attn_logit_softcapping" in changes:
        model.set_attn_implementation("eager")
    write_model(tmp_path / "m.gguf", model, "gemma3", METADATA | extra, change=one_added)
    ours = converted(tmp_path)
    ours.set_attn_implementation(model.config._attn_implementation)
    assert near(logits(ours), logits(model))
    if changes and "tie_word_embeddings" not in changes:
        assert not near(logits(gemma3()), logits(model))


def test_config_holds_all_that_matters(tmp_path: Path):
    write_model(tmp_path / "m.gguf", gemma3(), "gemma3", METADATA | LINEAR, change=one_added)
    convert(tmp_path / "m.gguf", tmp_path / "out")
    config = json.loads((tmp_path / "out/config.json").read_text())
    wanted = {
        "model_type": "gemma3_text",
        "head_dim": 32,
        "query_pre_attn_scalar": 32,
        "hidden_activation": "gelu_pytorch_tanh",
        "sliding_window": 5,
        "sliding_window_pattern": 6,
        "layer_types": ["sliding_attention"] * 5 + ["full_attention", "sliding_attention"],
        "rope_theta": 1e6,
        "rope_local_base_freq": 1e4,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0},
        "final_logit_softcapping": None,
        "attn_logit_softcapping": None,
    }
    assert {key: config[key] for key in wanted} == wanted


@pytest.mark.parametrize(
    ("layers", "hidden", "heads", "head_dim", "scalar"),
    [(26, 1152, 4, 256, 256), (48, 3840, 16, 256, 256), (62, 5376, 32, 128, 168)],
)
def test_published_query_scales(layers: int, hidden: int, heads: int, head_dim: int, scalar: int):
    """Gemma 3 1B, 12B and 27B, by their published sizes."""
    changed = {
        "embedding_length": hidden,
        "block_count": layers,
        "attention.head_count": heads,
        "attention.head_count_kv": 1,
        "attention.key_length": head_dim,
        "attention.value_length": head_dim,
    }
    embedding = StoredTensor("token_embd.weight", "F32", (9, hidden), 0, 9, 4 * hidden)
    file = GgufFile(
        Path("m.gguf"),
        {f"gemma3.{key}": value for key, value in (METADATA | changed).items()},
        {embedding.name: embedding} | {str(i): embedding for i in range(layers)},
    )
    assert ARCHITECTURES["gemma3"].config(file).config["query_pre_attn_scalar"] == scalar


@pytest.mark.parametrize(
    ("extra", "match"),
    [
        ({"attention.sliding_window": None}, r"holds no gemma3\.attention\.sliding_window"),
        ({"attention.sliding_window": 0}, "sliding_window is 0"),
        ({"attention.sliding_window_pattern": [True]}, "names 1 layers of 7"),
        ({"rope.scaling.type": "yarn"}, "rotary scaling 'yarn'"),
        ({"rope.dimension_count": 16}, "dimension_count is 16"),
        ({"attention.scale": 0.1}, r"attention\.scale to 0\.1"),
        ({"block_count": 2**31}, "promises 2,147,483,648 layers"),
        ({"final_logit_softcapping": -1.0}, "below 0"),
        ({"attention.value_length": 16}, "value_length is 16"),
    ],
)
def test_what_cannot_be_mapped_exactly_is_refused(tmp_path: Path, extra: Any, match: str):
    metadata = {key: value for key, value in (METADATA | extra).items() if value is not None}
    write_model(tmp_path / "m.gguf", gemma3(), "gemma3", metadata, change=one_added)
    with pytest.raises(CheckpointError, match=match):
        convert(tmp_path / "m.gguf", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def spaced_vocab() -> Vocab:
    """As Gemma's: spaces and line ends as whole tokens, merges in the order of the list."""
    first = ["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>"]
    lines = ["\n", "\n\n", "\n\n\n"]
    spaces = [" " * count for count in range(2, 9)]
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    joined = ["▁t", "he", "▁the", "in", "▁a", "er", "▁in", "ing", "th"]
    letters = ["▁", *"abcdefghijklmnopqrstuvwxyz.,"]
    tokens = [*first, *lines, *spaces, *bytes_, *joined, *letters]
    kinds = [3, 3, 3, 2, 3, 3, *[4] * 10, *[6] * 256, *[1] * (len(joined) + len(letters))]
    # Scores tell the order of merges only among the plain ones; the rest is a constant.
    scores = [-1000.0 if kind != 1 else -float(i) for i, kind in enumerate(kinds)]
    return Vocab(
        model="llama", pre="default", tokens=tokens, kinds=kinds, merges=None, scores=scores,
        ids={"bos": 2, "eos": 1, "unknown": 3, "padding": 0},
        extra={"tokenizer.ggml.add_space_prefix": False, "tokenizer.ggml.add_bos_token": True},
    )  # fmt: skip


def test_tokenizer_is_that_of_transformers_loader(tmp_path: Path):
    vocab = spaced_vocab()
    model = gemma3(vocab_size=len(vocab.tokens), num_hidden_layers=1)
    metadata = METADATA | {"block_count": 1}
    write_model(tmp_path / "m.gguf", model, "gemma3", metadata, change=one_added, vocab=vocab)
    convert(tmp_path / "m.gguf", tmp_path / "out")
    ours = AutoTokenizer.from_pretrained(tmp_path / "out")
    theirs = AutoTokenizer.from_pretrained(tmp_path, gguf_file="m.gguf")
    spaces = [f"a{' ' * count}the" for count in range(1, 20)]
    for text in [
        *spaces, "the inner thing", " lead", "  lead", "tail   ", "a\n\n\n\n  b", "你好 the",
        "<start_of_turn>the\nin<end_of_turn>\n", "x\t y", "▁▁", "théâtre in a",
    ]:  # fmt: skip
        ids = plain_ids(ours.backend_tokenizer, text)
        assert ids == plain_ids(theirs.backend_tokenizer, text), text
        assert ours(text).input_ids == [2, *ids]
        if "<" not in text and "▁" not in text:
            assert ours.decode(ids) == text
    assert plain_ids(ours.backend_tokenizer, "a   the")[1:] == [
        vocab.tokens.index("   "), *plain_ids(ours.backend_tokenizer, "the")
    ]  # fmt: skip
    made = json.loads((tmp_path / "out/generation_config.json").read_text())
    assert made["eos_token_id"] == [1, 5]


def test_spaces_under_two_spellings_are_refused(tmp_path: Path):
    vocab = spaced_vocab()
    vocab.tokens = [*vocab.tokens[:-1], "▁▁"]
    model = gemma3(vocab_size=len(vocab.tokens), num_hidden_layers=1)
    metadata = METADATA | {"block_count": 1}
    write_model(tmp_path / "m.gguf", model, "gemma3", metadata, change=one_added, vocab=vocab)
    with pytest.raises(CheckpointError, match="holds the token '▁▁' as 9 and as"):
        convert(tmp_path / "m.gguf", tmp_path / "out")
