"""Llama 1, 2, 3, 3.1, 3.2 and what shares their shape (SmolLM2, TinyLlama, stories260k).

Pre-norm RMSNorm, rotary positions, grouped-query attention, SwiGLU
(arXiv 2302.13971, 2307.09288, 2407.21783).
"""

from __future__ import annotations

from llmcli.checkpoint.config import ConfigReader
from llmcli.checkpoint.rope_config import read_rope
from llmcli.checkpoint.rules import Rule
from llmcli.families import hub_names
from llmcli.families.activations import read_activation
from llmcli.families.family import Family
from llmcli.families.sizes import read_head_dim, read_num_layers
from llmcli.spec import DecoderSpec, LayerSpec


def read(config: ConfigReader) -> DecoderSpec:
    hidden, heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    head_dim = read_head_dim(config, hidden=hidden, heads=heads)
    max_positions = config.integer("max_position_embeddings", 2048)
    bias = config.flag("attention_bias", False)
    rope = read_rope(config, dim=head_dim, max_positions=max_positions)
    config.expect("rope_interleaved", False)
    # pretraining_tp only says how the training run was cut over devices.
    config.ignore(["pretraining_tp", "attention_dropout", "is_llama_config"])
    return DecoderSpec(
        vocab_size=config.integer("vocab_size"),
        hidden_size=hidden,
        intermediate_size=config.integer("intermediate_size"),
        num_heads=heads,
        num_kv_heads=config.integer("num_key_value_heads", heads),
        head_dim=head_dim,
        max_positions=max_positions,
        layers=(LayerSpec(rope=rope),) * read_num_layers(config, "num_hidden_layers"),
        norm="rms",
        norm_eps=config.number("rms_norm_eps", 1e-6),
        mlp="gated",
        activation=read_activation(config, "hidden_act", "silu"),
        attn_scale=head_dim**-0.5,
        tie_embeddings=config.flag("tie_word_embeddings", False),
        attn_bias=bias,
        attn_out_bias=bias,
        mlp_bias=config.flag("mlp_bias", False),
    )


def rules(spec: DecoderSpec) -> list[Rule]:
    return hub_names.decoder(spec, attention=hub_names.attention(), mlp=hub_names.gated_mlp())


FAMILY = Family("llama", ("llama",), ("model.", ""), read, rules)
