"""OLMo 2 (arXiv 2501.00656).

Norms at the end of each residual branch, and over all heads of queries or keys at once.
"""

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
        norm_eps=config.number("rms_norm_eps", 1e-5),
        mlp="gated",
        activation=read_activation(config, "hidden_act", "silu"),
        attn_scale=head_dim**-0.5,
        tie_embeddings=config.flag("tie_word_embeddings", False),
        norm_casts_first=False,
        residual="post_inside",
        attn_bias=bias,
        attn_out_bias=bias,
        qk_norm="full",
    )


def rules(spec: DecoderSpec) -> list[Rule]:
    norms = {
        "post_attn_norm": "post_attention_layernorm",
        "post_mlp_norm": "post_feedforward_layernorm",
    }
    return hub_names.decoder(
        spec, attention=hub_names.attention(), mlp=hub_names.gated_mlp(), norms=norms
    )


FAMILY = Family("olmo2", ("olmo2",), ("model.", ""), read, rules)
