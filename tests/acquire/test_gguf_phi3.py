"""Phi-3 out of GGUF: fused projections, LongRoPE, partial rotary positions, windows."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, Phi3Config

from llmcli.acquire.gguf.architectures import ARCHITECTURES
from llmcli.acquire.gguf.reader import GgufFile, StoredTensor
from llmcli.acquire.gguf_import import convert
from llmcli.errors import CheckpointError

from .gguf_models import VOCAB, converted, logits, near, tiny, write_model
from .ggufs import byte_vocab
from .test_gguf_tokenizer import TEXTS, plain_ids, sentencepiece_vocab

METADATA: dict[str, Any] = {
    "context_length": 128,
    "rope.scaling.original_context_length": 128,
    "embedding_length": 64,
    "feed_forward_length": 96,
    "block_count": 2,
    "attention.head_count": 4,
    "attention.head_count_kv": 2,
    "attention.layer_norm_rms_epsilon": 1e-5,
    "attention.sliding_window": 0,
    "rope.dimension_count": 16,
    "rope.freq_base": 10000.0,
}


def phi3(*, rotary: float = 1.0, **changes: Any) -> Any:
    sizes = {
        "vocab_size": VOCAB,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 128,
        "original_max_position_embeddings": 128,
        "pad_token_id": 0,
        "bos_token_id": 0,
        "eos_token_id": 1,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000.0,
            "partial_rotary_factor": rotary,
        },
    }
    return tiny(Phi3Config(**sizes | changes))


def longrope(short: list[float], long: list[float], **more: Any) -> dict[str, Any]:
    return {
        "rope_parameters": {
            "rope_type": "longrope",
            "rope_theta": 10000.0,
            "partial_rotary_factor": len(short) / 8,
            "short_factor": short,
            "long_factor": long,
            **more,
        },
        "original_max_position_embeddings": 12,
    }


def factors(*, rotary: int = 16) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    return {
        f"rope_factors_{name}.weight": np.sort(rng.uniform(1, 4, rotary // 2)).astype(np.float32)
        for name in ("short", "long")
    }


@pytest.mark.parametrize(("tied", "kind"), [(False, "F32"), (True, "Q8_0")])
def test_logits_equal_transformers_gguf_loader(tmp_path: Path, tied: bool, kind: str):
    model = phi3(tie_word_embeddings=tied)
    vocab = byte_vocab()
    vocab.ids = {"bos": 0, "eos": 1, "padding": 1}
    metadata = METADATA | {"vocab_size": VOCAB}
    write_model(tmp_path / "m.gguf", model, "phi3", metadata, kind=kind, vocab=vocab)
    ours = converted(tmp_path)
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file="m.gguf", dtype=torch.float32)
    assert near(logits(ours), logits(theirs))
    assert ours.config.tie_word_embeddings is tied
    if kind == "F32":
        assert torch.equal(logits(ours), logits(model))


@pytest.mark.parametrize("rotary", [16, 12])
@pytest.mark.parametrize("ruled", [True, False])
def test_longrope_is_the_model_that_went_in(tmp_path: Path, rotary: int, ruled: bool):
    """Sixteen ids, past the original context of twelve: long factors; ten: short ones."""
    stored = factors(rotary=rotary)
    short, long = (
        [float(value) for value in stored[f"rope_factors_{name}.weight"]]
        for name in ("short", "long")
    )
    factor = math.sqrt(1 + math.log(128 / 12) / math.log(12)) if ruled else 1.25
    own = {} if ruled else {"attention_factor": factor}
    model = phi3(**longrope(short, long, **own))
    metadata = METADATA | {
        "rope.scaling.original_context_length": 12,
        "rope.scaling.attn_factor": factor,
        "rope.dimension_count": rotary,
    }
    write_model(tmp_path / "m.gguf", model, "phi3", metadata, more=stored)
    ours = converted(tmp_path)
    ids = torch.arange(40, 56)[None]
    for count in (10, 16):
        assert torch.equal(logits(ours, ids[:, :count]), logits(model, ids[:, :count]))
    assert not near(logits(phi3(), ids), logits(model, ids))
    config = json.loads((tmp_path / "out/config.json").read_text())
    assert config["original_max_position_embeddings"] == 12
    assert config["partial_rotary_factor"] == rotary / 16
    assert config["rope_scaling"] == {
        "rope_type": "longrope",
        "long_factor": long,
        "short_factor": short,
        **own,
    }


def test_partial_rotary_and_window_are_the_model_that_went_in(tmp_path: Path):
    model = phi3(rotary=0.75, sliding_window=5)
    changed = {"rope.dimension_count": 12, "attention.sliding_window": 5}
    write_model(tmp_path / "m.gguf", model, "phi3", METADATA | changed)
    assert torch.equal(logits(converted(tmp_path)), logits(model))
    assert not near(logits(phi3(sliding_window=5)), logits(model))
    assert not near(logits(phi3(rotary=0.75)), logits(model))


def test_no_window_is_none(tmp_path: Path):
    write_model(tmp_path / "m.gguf", phi3(), "phi3", METADATA)
    convert(tmp_path / "m.gguf", tmp_path / "out")
    config = json.loads((tmp_path / "out/config.json").read_text())
    assert config["sliding_window"] is None
    assert config["rope_scaling"] is None


@pytest.mark.parametrize(
    ("layers", "hidden", "kv_heads", "context", "window"),
    [(32, 3072, 32, 4096, 2047), (40, 5120, 10, 131072, 131072)],
)
def test_files_from_before_windows_were_stored(
    layers: int, hidden: int, kv_heads: int, context: int, window: int
):
    """Phi-3-mini-4k and Phi-3-medium-128k, by their published sizes."""
    metadata = {
        "context_length": context,
        "embedding_length": hidden,
        "feed_forward_length": 8192,
        "block_count": layers,
        "attention.head_count": layers,
        "attention.head_count_kv": kv_heads,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.dimension_count": hidden // layers,
    }
    embedding = StoredTensor("token_embd.weight", "F32", (32064, hidden), 0, 32064, 4 * hidden)
    file = GgufFile(
        Path("m.gguf"),
        {f"phi3.{key}": value for key, value in metadata.items()},
        {embedding.name: embedding} | {str(i): embedding for i in range(layers)},
    )
    config = ARCHITECTURES["phi3"].config(file).config
    assert config["sliding_window"] == window
    assert config["original_max_position_embeddings"] == context


@pytest.mark.parametrize(
    ("extra", "match"),
    [
        ({"attention.sliding_window": None}, r"holds no phi3\.attention\.sliding_window"),
        ({"rope.scaling.type": "yarn"}, "rotary scaling 'yarn'"),
        ({"rope.scaling.type": "longrope"}, "'longrope' and holds no factors"),
        ({"rope.scaling.attn_factor": 1.5}, "attn_factor is 1.5 without"),
        ({"rope.scaling.factor": 4.0}, r"not known: phi3\.rope\.scaling\.factor"),
        ({"attention.key_length": 32, "attention.value_length": 32}, "key_length is 32"),
        ({"rope.dimension_count": 32}, "dimension_count is 32, the head size 16"),
        ({"rope.dimension_count": 7}, "dimension_count is 7, the head size 16"),
        ({"expert_count": 16}, "mixture of 16"),
    ],
)
def test_what_cannot_be_mapped_exactly_is_refused(tmp_path: Path, extra: Any, match: str):
    metadata = {key: value for key, value in (METADATA | extra).items() if value is not None}
    write_model(tmp_path / "m.gguf", phi3(), "phi3", metadata)
    with pytest.raises(CheckpointError, match=match):
        convert(tmp_path / "m.gguf", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("more", "match"),
    [
        ({"rope_factors_long.weight": np.ones(8, "f")}, "without its other half"),
        (factors(rotary=12) | {}, "6 factors for 8"),
        (factors() | {"rope_factors_long.weight": np.zeros(8, "f")}, "not a number above 0"),
        (factors(), r"holds no phi3\.rope\.scaling\.attn_factor"),
        ({"blk.0.attn_qkv.bias": np.ones(128, "f")}, r"no place for: blk\.0\.attn_qkv\.bias"),
    ],
)
def test_factors_and_tensors_that_do_not_fit(tmp_path: Path, more: Any, match: str):
    write_model(tmp_path / "m.gguf", phi3(), "phi3", METADATA, more=more)
    with pytest.raises(CheckpointError, match=match):
        convert(tmp_path / "m.gguf", tmp_path / "out")


def test_tokenizer_is_that_of_transformers_loader_but_for_space_after_chat_tokens(tmp_path: Path):
    vocab, _ = sentencepiece_vocab()
    vocab.tokens, vocab.kinds = list(vocab.tokens), list(vocab.kinds)
    vocab.scores = list(vocab.scores or [])
    count = len(vocab.tokens)
    vocab.tokens += ["<|user|>", "<|end|>"]
    vocab.kinds += [3, 3]
    vocab.scores += [-1000.0, -1000.0]
    model = phi3(vocab_size=count + 2, num_hidden_layers=1)
    write_model(tmp_path / "m.gguf", model, "phi3", METADATA | {"block_count": 1}, vocab=vocab)
    convert(tmp_path / "m.gguf", tmp_path / "out")
    ours = AutoTokenizer.from_pretrained(tmp_path / "out")
    theirs = AutoTokenizer.from_pretrained(tmp_path, gguf_file="m.gguf")
    for text in [*TEXTS, "Once upon a time"]:
        if text:
            assert ours(text).input_ids == theirs(text).input_ids, text
    backend = ours.backend_tokenizer
    one = plain_ids(backend, "<|user|>\nOnce<|end|>\n<|user|>")
    assert one == plain_ids(backend, "<|user|>Once<|end|><|user|>")
    assert plain_ids(backend, "<s> a") != plain_ids(backend, "<s>a")
    made = json.loads((tmp_path / "out/generation_config.json").read_text())
    assert made["eos_token_id"] == [2, count + 1]


def test_byte_level_vocabularies_are_taken_as_they_are(tmp_path: Path):
    vocab = byte_vocab()
    vocab.pre = "gpt-4o"
    write_model(tmp_path / "m.gguf", phi3(), "phi3", METADATA, vocab=vocab)
    convert(tmp_path / "m.gguf", tmp_path / "out")
    ours = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert not any(token.rstrip for token in ours.added_tokens_decoder.values())
