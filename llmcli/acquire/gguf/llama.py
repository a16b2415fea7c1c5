"""The llama architecture (Llama, SmolLM, TinyLlama ...): its config.json and its tensors."""

from __future__ import annotations

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
from llmcli.acquire.gguf.sizes import read_sizes


def _config(file: GgufFile) -> Shaped:
    keys = Keys(file, "llama")
    sizes = read_sizes(file, keys)
    theta = keys.number("rope.freq_base", 10000.0)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": sizes.vocab,
        "hidden_size": sizes.hidden,
        "intermediate_size": sizes.inner,
        "num_hidden_layers": sizes.layers,
        "num_attention_heads": sizes.heads,
        "num_key_value_heads": sizes.kv_heads,
        "head_dim": sizes.head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": sizes.context,
        "rms_norm_eps": keys.number("attention.layer_norm_rms_epsilon"),
        "rope_theta": theta,
        "rope_scaling": rope_scaling(
            file, keys, ("linear", "llama3"), head_dim=sizes.head_dim, theta=theta
        ),
        "tie_word_embeddings": tied(file),
        "attention_bias": bias_flag(
            file, "attention_bias", ("attn_q", "attn_k", "attn_v", "attn_output")
        ),
        "mlp_bias": bias_flag(file, "mlp_bias", ("ffn_gate", "ffn_up", "ffn_down")),
    }
    keys.refuse_unmapped(context=sizes.context)
    return Shaped(config, sizes.table(), frozenset(keys.read))


LLAMA = Architecture(
    name="llama",
    config=_config,
    rules=(
        TensorRule("token_embd.weight", "model.embed_tokens.weight", ("vocab", "hidden")),
        TensorRule("output_norm.weight", "model.norm.weight", ("hidden",)),
        TensorRule("output.weight", "lm_head.weight", ("vocab", "hidden"), optional=True),
        TensorRule("blk.{i}.attn_norm.weight", LAYER + "input_layernorm.weight", ("hidden",)),
        *matrix(
            "attn_q",
            LAYER + "self_attn.q_proj",
            ("query", "hidden"),
            bias="optional",
            form="query",
        ),
        *matrix(
            "attn_k", LAYER + "self_attn.k_proj", ("key", "hidden"), bias="optional", form="key"
        ),
        *matrix("attn_v", LAYER + "self_attn.v_proj", ("key", "hidden"), bias="optional"),
        *matrix("attn_output", LAYER + "self_attn.o_proj", ("hidden", "query"), bias="optional"),
        TensorRule(
            "blk.{i}.ffn_norm.weight", LAYER + "post_attention_layernorm.weight", ("hidden",)
        ),
        *matrix("ffn_gate", LAYER + "mlp.gate_proj", ("inner", "hidden"), bias="optional"),
        *matrix("ffn_up", LAYER + "mlp.up_proj", ("inner", "hidden"), bias="optional"),
        *matrix("ffn_down", LAYER + "mlp.down_proj", ("hidden", "inner"), bias="optional"),
    ),
    consumed=frozenset({"rope_freqs.weight"}),
)
