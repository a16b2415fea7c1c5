"""DeepSeek-V3 and R1 (arXiv 2412.19437): latent attention; sigmoid-routed experts in groups.

A bias of each expert shifts the choice but not the weights, so that the load is even.
"""

from __future__ import annotations

from llmcli.checkpoint.config import ConfigReader
from llmcli.checkpoint.rope_config import read_rope
from llmcli.families import latent
from llmcli.families.activations import read_activation
from llmcli.families.family import Family
from llmcli.families.sizes import read_num_layers
from llmcli.spec import DecoderSpec, Experts


def read(config: ConfigReader) -> DecoderSpec:
    heads = config.integer("num_attention_heads", 128)
    sizes = latent.read_latent(config)
    max_positions = config.integer("max_position_embeddings", 4096)
    rope = read_rope(
        config,
        dim=sizes.rope_dim,
        max_positions=max_positions,
        interleaved=config.flag("rope_interleave", True),
    )
    layers = read_num_layers(config, "num_hidden_layers", 61)
    config.ignore(latent.IGNORED)
    return DecoderSpec(
        vocab_size=config.integer("vocab_size", 129280),
        hidden_size=config.integer("hidden_size", 7168),
        intermediate_size=config.integer("intermediate_size", 18432),
        num_heads=heads,
        num_kv_heads=config.integer("num_key_value_heads", heads),
        head_dim=sizes.nope_dim + sizes.rope_dim,
        max_positions=max_positions,
        layers=latent.read_layers(config, rope, count=layers, dense=3),
        norm="rms",
        norm_eps=config.number("rms_norm_eps", 1e-6),
        mlp="gated",
        activation=read_activation(config, "hidden_act", "silu"),
        attn_scale=latent.attention_scale(config, sizes, rope),
        tie_embeddings=config.flag("tie_word_embeddings", False),
        latent=sizes,
        experts=_read_experts(config),
    )


def _read_experts(config: ConfigReader) -> Experts:
    inner = config.integer("moe_intermediate_size", 2048)
    config.expect("topk_method", "noaux_tc")
    config.expect("scoring_func", "sigmoid")
    return Experts(
        count=config.integer("n_routed_experts", 256),
        top_k=config.integer("num_experts_per_tok", 8),
        intermediate_size=inner,
        router="sigmoid",
        normalise=config.flag("norm_topk_prob", True),
        scale=config.number("routed_scaling_factor", 2.5),
        correction_bias=True,
        groups=config.integer("n_group", 8),
        top_groups=config.integer("topk_group", 4),
        group_score="best_two",
        wide_router=True,
        shared_size=inner * config.integer("n_shared_experts", 1),
    )


FAMILY = Family("deepseek_v3", ("deepseek_v3",), ("model.", ""), read, latent.rules)
