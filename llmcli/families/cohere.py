"""Cohere's Command R: attention and MLP share their input; interleaved pairs; scaled logits."""

from __future__ import annotations

from llmcli.checkpoint.config import ConfigReader
from llmcli.checkpoint.rope_config import read_rope
from llmcli.checkpoint.rules import Rule
from llmcli.families import hub_names
from llmcli.families.activations import read_activation
from llmcli.families.family import Family
from llmcli.families.sizes import read_head_dim, read_kv_heads, read_num_layers
from llmcli.spec import DecoderSpec, LayerSpec


def read(config: ConfigReader) -> DecoderSpec:
    hidden, heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    head_dim = read_head_dim(config, hidden=hidden, heads=heads)
    max_positions = config.integer("max_position_embeddings", 8192)
    bias = config.flag("attention_bias", False)
    rope = read_rope(
        config, dim=head_dim, max_positions=max_positions, default_theta=500000.0, interleaved=True
    )
    config.ignore(["attention_dropout"])
    return DecoderSpec(
        vocab_size=config.integer("vocab_size"),
        hidden_size=hidden,
        intermediate_size=config.integer("intermediate_size"),
        num_heads=heads,
        num_kv_heads=read_kv_heads(config, heads),
        head_dim=head_dim,
        max_positions=max_positions,
        layers=(LayerSpec(rope=rope),) * read_num_layers(config, "num_hidden_layers"),
        norm="layer",
        norm_eps=config.number("layer_norm_eps", 1e-5),
        mlp="gated",
        activation=read_activation(config, "hidden_act", "silu"),
        attn_scale=head_dim**-0.5,
        tie_embeddings=config.flag("tie_word_embeddings", True),
        norm_bias=False,
        norm_casts_first=False,
        residual="parallel_shared",
        attn_bias=bias,
        attn_out_bias=bias,
        qk_norm="each_head" if config.flag("use_qk_norm", False) else None,
        logit_scale=config.number("logit_scale", 0.0625),
    )


def rules(spec: DecoderSpec) -> list[Rule]:
    return hub_names.decoder(spec, attention=hub_names.attention(), mlp=hub_names.gated_mlp())


FAMILY = Family("cohere", ("cohere",), ("model.", ""), read, rules)
