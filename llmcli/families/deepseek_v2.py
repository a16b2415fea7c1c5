"""DeepSeek-V2 (arXiv 2405.04434): latent attention; softmax-routed experts beside shared ones."""

from __future__ import annotations

from llmcli.checkpoint.config import ConfigReader
from llmcli.checkpoint.rope_config import read_rope
from llmcli.families import latent
from llmcli.families.activations import read_activation
from llmcli.families.family import Family
from llmcli.families.sizes import read_num_layers
from llmcli.spec import DecoderSpec, Experts

_GROUPED = {"greedy": False, "group_limited_greedy": True}


def read(config: ConfigReader) -> DecoderSpec:
    heads = config.integer("num_attention_heads", 32)
    sizes = latent.read_latent(config)
    max_positions = config.integer("max_position_embeddings", 2048)
    rope = read_rope(config, dim=sizes.rope_dim, max_positions=max_positions, interleaved=True)
    layers = read_num_layers(config, "num_hidden_layers", 32)
    config.ignore(latent.IGNORED)
    return DecoderSpec(
        vocab_size=config.integer("vocab_size", 102400),
        hidden_size=config.integer("hidden_size", 4096),
        intermediate_size=config.integer("intermediate_size", 11008),
        num_heads=heads,
        num_kv_heads=config.integer("num_key_value_heads", heads),
        head_dim=sizes.nope_dim + sizes.rope_dim,
        max_positions=max_positions,
        layers=latent.read_layers(config, rope, count=layers, dense=0),
        norm="rms",
        norm_eps=config.number("rms_norm_eps", 1e-6),
        mlp="gated",
        activation=read_activation(config, "hidden_act", "silu"),
        attn_scale=latent.attention_scale(config, sizes, rope),
        tie_embeddings=config.flag("tie_word_embeddings", False),
        latent=sizes,
        mlp_bias=config.flag("mlp_bias", False),
        experts=_read_experts(config),
    )


def _read_experts(config: ConfigReader) -> Experts:
    grouped = config.choice("topk_method", _GROUPED, "greedy")
    groups, top_groups = config.integer("n_group", 1), config.integer("topk_group", 1)
    inner = config.integer("moe_intermediate_size", 1407)
    config.expect("scoring_func", "softmax")
    config.expect("norm_topk_prob", False, None)
    return Experts(
        count=config.integer("n_routed_experts", 64),
        top_k=config.integer("num_experts_per_tok"),
        intermediate_size=inner,
        normalise=False,
        scale=config.number("routed_scaling_factor", 1.0),
        groups=groups if grouped else 1,
        top_groups=top_groups if grouped else 1,
        wide_router=True,
        shared_size=inner * config.integer("n_shared_experts", 2),
    )


FAMILY = Family("deepseek_v2", ("deepseek_v2",), ("model.", ""), read, latent.rules)
