"""Small GGUF files, written with the gguf library from numpy arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf
import numpy as np

# Bytes as GPT-2's vocabulary spells them.
_PLAIN = [*range(33, 127), *range(161, 173), *range(174, 256)]
_OTHER = [byte for byte in range(256) if byte not in _PLAIN]
ALPHABET = [chr(byte) for byte in _PLAIN] + [chr(256 + i) for i in range(len(_OTHER))]


@dataclass
class Vocab:
    """A tokenizer as GGUF stores one."""

    model: str = "gpt2"
    pre: str | None = "gpt-2"
    tokens: Sequence[str] = ()
    kinds: Sequence[int] = ()
    merges: Sequence[str] | None = ()
    scores: Sequence[float] | None = None
    ids: Mapping[str, int] = field(default_factory=lambda: {"bos": 0, "eos": 1})
    extra: Mapping[str, Any] = field(default_factory=dict)


def byte_vocab() -> Vocab:
    """Every byte, two merges, two control tokens and one user-defined token."""
    tokens = ["<s>", "</s>", *ALPHABET, "he", "hel", "<think>"]
    kinds = [3, 3, *[1] * len(ALPHABET), 1, 1, 4]
    return Vocab(tokens=tokens, kinds=kinds, merges=["h e", "he l"])


@dataclass
class Shape:
    """A llama-architecture model small enough for a test."""

    vocab: int = 288
    hidden: int = 64
    inner: int = 96
    layers: int = 2
    heads: int = 4
    kv_heads: int = 2
    context: int = 128
    theta: float = 10000.0
    eps: float = 1e-5
    tied: bool = True


def permute(weight: np.ndarray, heads: int) -> np.ndarray:
    """The order in which llama.cpp's converter stores rotary rows."""
    rows = weight.shape[0]
    halves = weight.reshape(heads, 2, rows // heads // 2, *weight.shape[1:])
    return halves.swapaxes(1, 2).reshape(weight.shape)


def random_tensors(shape: Shape, seed: int = 0) -> dict[str, np.ndarray]:
    """Tensors under their GGUF names; norms around one, the rest spread enough to matter."""
    rng = np.random.default_rng(seed)
    head_dim = shape.hidden // shape.heads

    def matrix(*size: int) -> np.ndarray:
        return rng.normal(0, 0.15, size).astype(np.float32)

    def norm() -> np.ndarray:
        return rng.normal(1, 0.2, shape.hidden).astype(np.float32)

    tensors = {"token_embd.weight": matrix(shape.vocab, shape.hidden), "output_norm.weight": norm()}
    if not shape.tied:
        tensors["output.weight"] = matrix(shape.vocab, shape.hidden)
    for i in range(shape.layers):
        block = f"blk.{i}."
        tensors |= {
            block + "attn_norm.weight": norm(),
            block + "attn_q.weight": matrix(shape.hidden, shape.hidden),
            block + "attn_k.weight": matrix(shape.kv_heads * head_dim, shape.hidden),
            block + "attn_v.weight": matrix(shape.kv_heads * head_dim, shape.hidden),
            block + "attn_output.weight": matrix(shape.hidden, shape.hidden),
            block + "ffn_norm.weight": norm(),
            block + "ffn_gate.weight": matrix(shape.inner, shape.hidden),
            block + "ffn_up.weight": matrix(shape.inner, shape.hidden),
            block + "ffn_down.weight": matrix(shape.hidden, shape.inner),
        }
    return tensors


def write_gguf(
    path: Path,
    *,
    shape: Shape | None = None,
    vocab: Vocab | None = None,
    tensors: Mapping[str, np.ndarray] | None = None,
    kinds: Sequence[str] = ("F32",),
    arch: str = "llama",
    extra: Mapping[str, Any] | None = None,
    drawn: bool = False,
) -> Path:
    """Write a GGUF file; matrices take the quantisations of `kinds` in turn.

    With `drawn` their blocks are bytes of any value.
    """
    shape, vocab = shape or Shape(), vocab or byte_vocab()
    tensors = random_tensors(shape) if tensors is None else tensors
    writer = gguf.GGUFWriter(path, arch)
    _add_shape(writer, shape)
    add_vocab(writer, vocab)
    for key, value in (extra or {}).items():
        add_value(writer, key, value)
    matrices = 0
    for name, values in tensors.items():
        kind = gguf.GGMLQuantizationType.F32
        if values.ndim == 2:
            kind = gguf.GGMLQuantizationType[kinds[matrices % len(kinds)]]
            matrices += 1
        # The library cannot quantise to every kind that it reads.
        if values.ndim == 2 and (drawn or kind == gguf.GGMLQuantizationType.Q6_K):
            data = random_blocks(kind.name, *values.shape, seed=matrices)
        else:
            data = gguf.quantize(values, kind)
        writer.add_tensor(name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def random_blocks(kind: str, rows: int, columns: int, *, seed: int = 0) -> np.ndarray:
    """Bytes of any value as blocks of `kind`, with scales (and minima) of a usual size."""
    per_block, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]]
    rng = np.random.default_rng(seed)
    blocks = rng.integers(0, 256, (rows * columns // per_block, size), np.uint8)
    for at in {"Q6_K": (208,), "Q4_1": (0, 2), "Q5_1": (0, 2)}.get(kind, (0,)):
        scales = rng.normal(0, 1e-4 if kind == "Q6_K" else 1e-2, (len(blocks), 1))
        blocks[:, at : at + 2] = scales.astype(np.float16).view(np.uint8)
    return blocks.reshape(rows, -1)


def _add_shape(writer: gguf.GGUFWriter, shape: Shape) -> None:
    writer.add_context_length(shape.context)
    writer.add_block_count(shape.layers)
    writer.add_embedding_length(shape.hidden)
    writer.add_feed_forward_length(shape.inner)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_rope_freq_base(shape.theta)
    writer.add_rope_dimension_count(shape.hidden // shape.heads)
    writer.add_layer_norm_rms_eps(shape.eps)
    writer.add_vocab_size(shape.vocab)


def add_vocab(writer: gguf.GGUFWriter, vocab: Vocab) -> None:
    """The tokenizer's keys."""
    writer.add_name("small")
    writer.add_tokenizer_model(vocab.model)
    if vocab.pre is not None:
        writer.add_tokenizer_pre(vocab.pre)
    writer.add_token_list(list(vocab.tokens))
    if vocab.kinds:
        writer.add_token_types(list(vocab.kinds))
    if vocab.merges:
        writer.add_token_merges(list(vocab.merges))
    if vocab.scores is not None:
        writer.add_token_scores(list(vocab.scores))
    for role, token in vocab.ids.items():
        writer.add_uint32(f"tokenizer.ggml.{role}_token_id", token)
    for key, value in vocab.extra.items():
        add_value(writer, key, value)


def add_value(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    """One key, typed by its value."""
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    else:
        writer.add_array(key, value)
