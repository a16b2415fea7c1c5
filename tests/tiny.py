"""TINY: a llama-form checkpoint written without transformers, to be broken in one way at a time."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from llmcli.checkpoint.directory import ModelDir
from llmcli.families import read_spec
from llmcli.model import Decoder
from llmcli.spec import DecoderSpec, LayerSpec, Rope, parameter_shapes

TINY: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 320,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
}

_STORED_AS = {
    "embed_tokens": "model.embed_tokens",
    "norm": "model.norm",
    "attn_norm": "input_layernorm",
    "mlp_norm": "post_attention_layernorm",
    "attn": "self_attn",
}


def tiny_spec(**changes: Any) -> DecoderSpec:
    """The spec of TINY with some config keys changed."""
    return read_spec({**TINY, **changes})[1]


def tiny_tensors(spec: DecoderSpec | None = None, *, seed: int = 0) -> dict[str, Tensor]:
    """Random weights under the names of a llama checkpoint."""
    drawn = random_parameters(spec or tiny_spec(), seed=seed)
    return {stored_name(name): tensor for name, tensor in drawn.items()}


def write_tiny(
    folder: Path,
    tensors: Mapping[str, Tensor] | None = None,
    *,
    config: Mapping[str, Any] | None = None,
) -> ModelDir:
    """Write a checkpoint's folder; `config` changes keys of TINY, and drops those that are ..."""
    folder.mkdir(parents=True, exist_ok=True)
    merged = {**TINY, **(config or {})}
    settings = {key: value for key, value in merged.items() if value is not ...}
    (folder / "config.json").write_text(json.dumps(settings))
    save_file(dict(tiny_tensors() if tensors is None else tensors), folder / "model.safetensors")
    return ModelDir.open(folder)


def random_parameters(
    spec: DecoderSpec, *, seed: int = 0, dtype: torch.dtype = torch.float32
) -> dict[str, Tensor]:
    """Random parameters under the decoder's own names: norms around 1, matrices that matter."""
    generator = torch.Generator().manual_seed(seed)
    drawn = {}
    for name, shape in parameter_shapes(spec).items():
        values = torch.randn(shape, generator=generator, dtype=torch.float32)
        if name.endswith("norm.weight"):
            values = 1 + values / 4
        elif len(shape) == 2 and "embed" not in name:
            values = values * 1.2 * shape[1] ** -0.5
        drawn[name] = values.to(dtype)
    return drawn


def random_decoder(
    spec: DecoderSpec | None = None, *, seed: int = 0, dtype: torch.dtype = torch.float64
) -> Decoder:
    """A decoder with random weights, in float64 unless said otherwise."""
    spec = spec or tiny_spec()
    return Decoder.filled(spec, random_parameters(spec, seed=seed, dtype=dtype).items()).eval()


def small_spec(vocab_size: int) -> DecoderSpec:
    """The smallest decoder of some use: one layer of one head."""
    return DecoderSpec(
        vocab_size=vocab_size,
        hidden_size=8,
        intermediate_size=8,
        num_heads=1,
        num_kv_heads=1,
        head_dim=8,
        max_positions=64,
        layers=(LayerSpec(rope=Rope(theta=10000.0, dim=8)),),
        norm="rms",
        norm_eps=1e-5,
        mlp="gated",
        activation="silu",
        attn_scale=8**-0.5,
        tie_embeddings=False,
    )


def constant_decoder(logits: list[float]) -> Decoder:
    """A decoder that says the same logits always: the head reads one direction of a lone row."""
    spec = small_spec(len(logits))
    parameters = random_parameters(spec)
    for name, tensor in parameters.items():
        tensor.fill_(1.0 if name.endswith("norm.weight") or name.startswith("embed") else 0.0)
    parameters["lm_head.weight"][:, 0] = torch.tensor(logits)
    return Decoder.filled(spec, parameters.items()).eval()


def stored_name(name: str) -> str:
    parts = name.split(".")
    if parts[0] == "layers":
        parts = ["model", *(_STORED_AS.get(part, part) for part in parts)]
    else:
        parts[0] = _STORED_AS.get(parts[0], parts[0])
    return ".".join(parts)
