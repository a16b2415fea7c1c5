"""config.json of a llama-architecture GGUF file. Must not know tensor names beyond a few flags."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from llmcli.acquire.gguf.reader import GgufFile
from llmcli.acquire.gguf.rope import rope_scaling

_ARCH = "llama"
_BIASES = {
    "attention_bias": ("attn_q", "attn_k", "attn_v", "attn_output"),
    "mlp_bias": ("ffn_gate", "ffn_up", "ffn_down"),
}


def llama_config(file: GgufFile) -> tuple[dict[str, Any], Mapping[str, int], frozenset[str]]:
    """The config, the sizes of its tensors by symbolic name, and the keys that were read."""
    keys = _Keys(file)
    _refuse_variants(file, keys)
    hidden, layers = keys.size("embedding_length"), keys.size("block_count")
    heads = keys.size("attention.head_count")
    kv_heads = keys.size("attention.head_count_kv", heads)
    inner = keys.size("feed_forward_length")
    head_dim = _head_dim(file, keys, hidden, heads)
    if heads % kv_heads:
        raise file.fault(f"has {heads} heads that {kv_heads} key-value heads do not divide")
    theta = keys.number("rope.freq_base", 10000.0)
    context = keys.size("context_length")
    config: dict[str, Any] = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": _vocab(file),
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": context,
        "rms_norm_eps": keys.number("attention.layer_norm_rms_epsilon"),
        "rope_theta": theta,
        "rope_scaling": rope_scaling(file, head_dim=head_dim, theta=theta),
        "tie_word_embeddings": "output.weight" not in file.tensors,
        **{flag: _bias(file, flag, names) for flag, names in _BIASES.items()},
    }
    sizes = {
        "vocab": config["vocab_size"],
        "hidden": hidden,
        "inner": inner,
        "layers": layers,
        "heads": heads,
        "kv_heads": kv_heads,
        "query": heads * head_dim,
        "key": kv_heads * head_dim,
    }
    return config, sizes, frozenset(keys.read)


class _Keys:
    """Typed reads of `llama.*`, remembering what was asked for."""

    def __init__(self, file: GgufFile) -> None:
        self._file = file
        self.read: set[str] = {
            f"{_ARCH}.rope.scaling.{name}"
            for name in ("type", "factor", "original_context_length", "finetuned", "attn_factor")
        } | {f"{_ARCH}.rope.scale_linear", f"{_ARCH}.vocab_size"}

    def size(self, name: str, default: int | None = None) -> int:
        """A positive whole number; a list of one value for every layer counts as that value."""
        value: object = self._value(name, default)
        if isinstance(value, list):
            if not value or any(item != value[0] for item in value):
                raise self._file.fault(
                    f"{_ARCH}.{name} differs between layers",
                    "only one value for all layers can be imported",
                )
            value = value[0]
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise self._file.fault(f"{_ARCH}.{name} is {value!r:.60}, not a positive whole number")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        value = self._value(name, default)
        if not isinstance(value, float | int) or not math.isfinite(value):
            raise self._file.fault(f"{_ARCH}.{name} is {value!r:.60}, not a number")
        # Stored as float32: the shortest decimal is what was meant (1e-05, not 9.99999974e-06).
        return float(f"{value:.7g}")

    def get(self, name: str) -> Any:
        self.read.add(f"{_ARCH}.{name}")
        return self._file.metadata.get(f"{_ARCH}.{name}")

    def _value(self, name: str, default: object) -> object:
        value = self.get(name)
        if value is None and default is None:
            raise self._file.fault(f"holds no {_ARCH}.{name}")
        return default if value is None else value


def _refuse_variants(file: GgufFile, keys: _Keys) -> None:
    experts = keys.get("expert_count")
    keys.get("expert_used_count")
    if experts:
        raise file.fault(
            f"is a mixture of {experts!r:.60} experts",
            "only the dense llama architecture can be imported",
        )


def _head_dim(file: GgufFile, keys: _Keys, hidden: int, heads: int) -> int:
    if keys.get("attention.key_length") is None and hidden % heads:
        raise file.fault(f"has {heads} heads that do not divide the hidden size {hidden}")
    head_dim = keys.size("attention.key_length", hidden // heads)
    for name in ("attention.value_length", "rope.dimension_count"):
        other = keys.size(name, head_dim)
        if other != head_dim:
            raise file.fault(
                f"{_ARCH}.{name} is {other}, the head size {head_dim}",
                "only whole rotary heads of one size can be imported",
            )
    return head_dim


def _vocab(file: GgufFile) -> int:
    embedding = file.tensors.get("token_embd.weight")
    if embedding is None:
        raise file.fault("holds no tensor token_embd.weight")
    return embedding.shape[0]


def _bias(file: GgufFile, flag: str, names: tuple[str, ...]) -> bool:
    there = [name for name in names if f"blk.0.{name}.bias" in file.tensors]
    if there and len(there) != len(names):
        raise file.fault(
            f"has a bias in {', '.join(there)} but not in every one of {', '.join(names)}",
            f"{flag} in config.json is all or none",
        )
    return bool(there)
