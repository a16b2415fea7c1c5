"""IBM's dense Granite models: Llama's form with four scalar multipliers (arXiv 2203.03466)."""

from __future__ import annotations

from llmcli.checkpoint.config import ConfigReader
from llmcli.checkpoint.rope_config import read_rope
from llmcli.checkpoint.rules import Rule
from llmcli.families import hub_names
from llmcli.families.activations import read_activation
from llmcli.families.family import Family
from llmcli.families.sizes import read_head_dim, read_kv_heads, read_num_layers, read_positive
from llmcli.spec import DecoderSpec, LayerSpec


def read(config: ConfigReader) -> DecoderSpec:
    hidden, heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    head_dim = read_head_dim(config, hidden=hidden, heads=heads)
    max_positions = config.integer("max_position_embeddings", 2048)
    bias = config.flag("attention_bias", False)
    rope = read_rope(config, dim=head_dim, max_positions=max_positions)
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
        norm="rms",
        norm_eps=config.number("rms_norm_eps", 1e-6),
        mlp="gated",
        activation=read_activation(config, "hidden_act", "silu"),
        attn_scale=config.number("attention_multiplier", 1.0),
        tie_embeddings=config.flag("tie_word_embeddings", False),
        residual_scale=config.number("residual_multiplier", 1.0),
        attn_bias=bias,
        attn_out_bias=bias,
        mlp_bias=config.flag("mlp_bias", False),
        embed_scale=config.number("embedding_multiplier", 1.0),
        logit_scale=1 / read_positive(config, "logits_scaling", 1.0),
    )


def rules(spec: DecoderSpec) -> list[Rule]:
    return hub_names.decoder(spec, attention=hub_names.attention(), mlp=hub_names.gated_mlp())


FAMILY = Family("granite", ("granite",), ("model.", ""), read, rules)
