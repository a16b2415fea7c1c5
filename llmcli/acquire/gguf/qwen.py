"""The qwen2 and qwen3 architectures: their config.json and their tensors.

Qwen2 has biases on queries, keys and values; Qwen3 a norm on each head's query and key.
"""

from __future__ import annotations

from typing import Any

from llmcli.acquire.gguf.keys import Keys
from llmcli.acquire.gguf.reader import GgufFile
from llmcli.acquire.gguf.rope import rope_scaling
from llmcli.acquire.gguf.rules import (
    LAYER,
    Architecture,
    Shaped,
    TensorRule,
    bias_flag,
    matrix,
    tied,
)
from llmcli.acquire.gguf.sizes import Sizes, read_sizes


def _qwen2(file: GgufFile) -> Shaped:
    keys = Keys(file, "qwen2")
    sizes = read_sizes(file, keys, own_head_dim=False)
    config = {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"}
    return _shaped(keys, sizes, config | _common(file, keys, sizes))


def _qwen3(file: GgufFile) -> Shaped:
    keys = Keys(file, "qwen3")
    sizes = read_sizes(file, keys)
    config = {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "head_dim": sizes.head_dim,
        "attention_bias": bias_flag(
            file, "attention_bias", ("attn_q", "attn_k", "attn_v", "attn_output")
        ),
    }
    return _shaped(keys, sizes, config | _common(file, keys, sizes))


def _common(file: GgufFile, keys: Keys, sizes: Sizes) -> dict[str, Any]:
    theta = keys.number("rope.freq_base", 10000.0)
    return {
        "vocab_size": sizes.vocab,
        "hidden_size": sizes.hidden,
        "intermediate_size": sizes.inner,
        "num_hidden_layers": sizes.layers,
        "num_attention_heads": sizes.heads,
        "num_key_value_heads": sizes.kv_heads,
        "hidden_act": "silu",
        "max_position_embeddings": sizes.context,
        "rms_norm_eps": keys.number("attention.layer_norm_rms_epsilon"),
        "rope_theta": theta,
        "rope_scaling": rope_scaling(
            file, keys, ("linear", "yarn"), head_dim=sizes.head_dim, theta=theta
        ),
        "use_sliding_window": False,
        "sliding_window": None,
        "max_window_layers": sizes.layers,
        "tie_word_embeddings": tied(file),
    }


def _shaped(keys: Keys, sizes: Sizes, config: dict[str, Any]) -> Shaped:
    keys.refuse_unmapped(context=sizes.context)
    return Shaped(config, sizes.table(), frozenset(keys.read))


_EDGES = (
    TensorRule("token_embd.weight", "model.embed_tokens.weight", ("vocab", "hidden")),
    TensorRule("output_norm.weight", "model.norm.weight", ("hidden",)),
    TensorRule("output.weight", "lm_head.weight", ("vocab", "hidden"), optional=True),
)
_FEED_FORWARD = (
    TensorRule("blk.{i}.ffn_norm.weight", LAYER + "post_attention_layernorm.weight", ("hidden",)),
    *matrix("ffn_gate", LAYER + "mlp.gate_proj", ("inner", "hidden")),
    *matrix("ffn_up", LAYER + "mlp.up_proj", ("inner", "hidden")),
    *matrix("ffn_down", LAYER + "mlp.down_proj", ("hidden", "inner")),
)
_ATTENTION_NORM = TensorRule(
    "blk.{i}.attn_norm.weight", LAYER + "input_layernorm.weight", ("hidden",)
)

QWEN2 = Architecture(
    name="qwen2",
    config=_qwen2,
    rules=(
        *_EDGES,
        _ATTENTION_NORM,
        *matrix("attn_q", LAYER + "self_attn.q_proj", ("query", "hidden"), bias="always"),
        *matrix("attn_k", LAYER + "self_attn.k_proj", ("key", "hidden"), bias="always"),
        *matrix("attn_v", LAYER + "self_attn.v_proj", ("key", "hidden"), bias="always"),
        *matrix("attn_output", LAYER + "self_attn.o_proj", ("hidden", "query")),
        *_FEED_FORWARD,
    ),
)

QWEN3 = Architecture(
    name="qwen3",
    config=_qwen3,
    rules=(
        *_EDGES,
        _ATTENTION_NORM,
        *matrix("attn_q", LAYER + "self_attn.q_proj", ("query", "hidden"), bias="optional"),
        *matrix("attn_k", LAYER + "self_attn.k_proj", ("key", "hidden"), bias="optional"),
        *matrix("attn_v", LAYER + "self_attn.v_proj", ("key", "hidden"), bias="optional"),
        *matrix("attn_output", LAYER + "self_attn.o_proj", ("hidden", "query"), bias="optional"),
        TensorRule("blk.{i}.attn_q_norm.weight", LAYER + "self_attn.q_norm.weight", ("head_dim",)),
        TensorRule("blk.{i}.attn_k_norm.weight", LAYER + "self_attn.k_norm.weight", ("head_dim",)),
        *_FEED_FORWARD,
    ),
)
