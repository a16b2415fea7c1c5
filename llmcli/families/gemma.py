"""Gemma 1, 1.1 and CodeGemma (arXiv 2403.08295): Llama's form, with embeddings scaled up.

Norm weights lie around 0 and 1 is added; embeddings times sqrt(hidden size); a gated tanh GELU.
"""

from __future__ import annotations

from llmcli.checkpoint.config import ConfigReader
from llmcli.checkpoint.rope_config import read_rope
from llmcli.checkpoint.rules import Rule
from llmcli.families import hub_names
from llmcli.families.activations import read_activation
from llmcli.families.family import Family
from llmcli.families.sizes import read_head_dim, read_kv_heads, read_num_layers
from llmcli.spec import Activation, DecoderSpec, LayerSpec


def read(config: ConfigReader) -> DecoderSpec:
    hidden, heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    head_dim = read_head_dim(config, hidden=hidden, heads=heads, absent=256)
    max_positions = config.integer("max_position_embeddings", 8192)
    rope = read_rope(config, dim=head_dim, max_positions=max_positions)
    bias = config.flag("attention_bias", False)
    config.expect("use_bidirectional_attention", None, False)
    # Some files have `hidden_activation` beside `hidden_act`, which alone is read.
    config.ignore(["attention_dropout", "hidden_activation"])
    return DecoderSpec(
        vocab_size=config.integer("vocab_size"),
        hidden_size=hidden,
        intermediate_size=config.integer("intermediate_size"),
        num_heads=heads,
        num_kv_heads=read_kv_heads(config, heads, absent=16),
        head_dim=head_dim,
        max_positions=max_positions,
        layers=(LayerSpec(rope=rope),) * read_num_layers(config, "num_hidden_layers"),
        norm="rms",
        norm_eps=config.number("rms_norm_eps", 1e-6),
        mlp="gated",
        activation=_activation(config),
        attn_scale=head_dim**-0.5,
        tie_embeddings=config.flag("tie_word_embeddings", True),
        norm_offset=1.0,
        norm_casts_first=False,
        attn_bias=bias,
        attn_out_bias=bias,
        embed_scale=hidden**0.5,
    )


def _activation(config: ConfigReader) -> Activation:
    """The first files say "gelu" and mean the tanh form."""
    if config.raw("hidden_act") == "gelu":
        return "gelu_tanh"
    return read_activation(config, "hidden_act", "gelu_pytorch_tanh")


def rules(spec: DecoderSpec) -> list[Rule]:
    return hub_names.decoder(spec, attention=hub_names.attention(), mlp=hub_names.gated_mlp())


FAMILY = Family("gemma", ("gemma",), ("model.", ""), read, rules)
