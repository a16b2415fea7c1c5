"""Qwen3-MoE: Qwen3 with a sparse mixture of experts in most layers (arXiv 2505.09388)."""

from __future__ import annotations

from llmcli.checkpoint.config import ConfigReader
from llmcli.checkpoint.rope_config import read_rope
from llmcli.checkpoint.rules import Rule
from llmcli.families import hub_names
from llmcli.families.activations import read_activation
from llmcli.families.family import Family
from llmcli.families.sizes import (
    read_head_dim,
    read_interval,
    read_kv_heads,
    read_layer_numbers,
    read_num_layers,
)
from llmcli.families.windows import read_window
from llmcli.spec import DecoderSpec, Experts, LayerSpec


def read(config: ConfigReader) -> DecoderSpec:
    hidden, heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    head_dim = read_head_dim(config, hidden=hidden, heads=heads)
    max_positions = config.integer("max_position_embeddings", 32768)
    rope = read_rope(config, dim=head_dim, max_positions=max_positions)
    slides = config.flag("use_sliding_window", False)
    window = read_window(config, absent=4096) if slides else None
    layers = range(read_num_layers(config, "num_hidden_layers"))
    step = read_interval(config, "decoder_sparse_step", 1)
    dense = read_layer_numbers(config, "mlp_only_layers")
    bias = config.flag("attention_bias", False)
    # How the router was trained; and a key of Qwen2 that nothing reads here.
    config.ignore(["output_router_logits", "router_aux_loss_coef", "max_window_layers"])
    config.ignore(["attention_dropout", "sliding_window"])
    return DecoderSpec(
        vocab_size=config.integer("vocab_size"),
        hidden_size=hidden,
        intermediate_size=config.integer("intermediate_size"),
        num_heads=heads,
        num_kv_heads=read_kv_heads(config, heads, absent=4),
        head_dim=head_dim,
        max_positions=max_positions,
        layers=tuple(
            LayerSpec(
                rope=rope, window=window, sparse=(layer + 1) % step == 0 and layer not in dense
            )
            for layer in layers
        ),
        norm="rms",
        norm_eps=config.number("rms_norm_eps", 1e-6),
        mlp="gated",
        activation=read_activation(config, "hidden_act", "silu"),
        attn_scale=head_dim**-0.5,
        tie_embeddings=config.flag("tie_word_embeddings", False),
        attn_bias=bias,
        attn_out_bias=bias,
        qk_norm="per_head",
        experts=Experts(
            count=config.integer("num_local_experts", config.integer("num_experts", 128)),
            top_k=config.integer("num_experts_per_tok", 8),
            intermediate_size=config.integer("moe_intermediate_size", 768),
            normalise=config.flag("norm_topk_prob", False),
        ),
    )


def rules(spec: DecoderSpec) -> list[Rule]:
    sparse = hub_names.experts("mlp", gate="gate_proj", up="up_proj", down="down_proj")
    return hub_names.decoder(
        spec, attention=hub_names.attention(), mlp=[*hub_names.gated_mlp(), *sparse]
    )


FAMILY = Family("qwen3_moe", ("qwen3_moe",), ("model.", ""), read, rules)
