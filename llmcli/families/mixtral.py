"""Mixtral: Mistral's form with a sparse mixture of experts in every layer (arXiv 2401.04088)."""

from __future__ import annotations

from llmcli.checkpoint.config import ConfigReader
from llmcli.checkpoint.rope_config import read_rope
from llmcli.checkpoint.rules import Rule
from llmcli.families import hub_names
from llmcli.families.activations import read_activation
from llmcli.families.family import Family
from llmcli.families.sizes import read_head_dim, read_kv_heads, read_num_layers
from llmcli.families.windows import read_window
from llmcli.spec import DecoderSpec, Experts, LayerSpec


def read(config: ConfigReader) -> DecoderSpec:
    hidden, heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    head_dim = read_head_dim(config, hidden=hidden, heads=heads)
    max_positions = config.integer("max_position_embeddings", 131072)
    inner = config.integer("intermediate_size")
    rope = read_rope(config, dim=head_dim, max_positions=max_positions, default_theta=1e6)
    layer = LayerSpec(rope=rope, window=read_window(config, absent=None), sparse=True)
    # How the router was trained.
    config.ignore(
        ["attention_dropout", "output_router_logits", "router_aux_loss_coef", "router_jitter_noise"]
    )
    return DecoderSpec(
        vocab_size=config.integer("vocab_size"),
        hidden_size=hidden,
        intermediate_size=inner,
        num_heads=heads,
        num_kv_heads=read_kv_heads(config, heads, absent=8),
        head_dim=head_dim,
        max_positions=max_positions,
        layers=(layer,) * read_num_layers(config, "num_hidden_layers"),
        norm="rms",
        norm_eps=config.number("rms_norm_eps", 1e-5),
        mlp="gated",
        activation=read_activation(config, "hidden_act", "silu"),
        attn_scale=head_dim**-0.5,
        tie_embeddings=config.flag("tie_word_embeddings", False),
        experts=Experts(
            count=config.integer("num_local_experts", 8),
            top_k=config.integer("num_experts_per_tok", 2),
            intermediate_size=inner,
        ),
    )


def rules(spec: DecoderSpec) -> list[Rule]:
    sparse = hub_names.experts("block_sparse_moe", gate="w1", up="w3", down="w2")
    return hub_names.decoder(spec, attention=hub_names.attention(), mlp=sparse)


FAMILY = Family("mixtral", ("mixtral",), ("model.", ""), read, rules)
