"""Gemma 3, text only (arXiv 2503.19786).

Gemma 2's form without the cap on scores, with norms of queries and keys; five of six layers
slide, and these have a rotary base of their own.
"""

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
    read_num_layers,
    read_positive,
    read_softcap,
)
from llmcli.families.windows import read_window, read_windows
from llmcli.spec import DecoderSpec, LayerSpec


def read(config: ConfigReader) -> DecoderSpec:
    hidden, heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    head_dim = read_head_dim(config, hidden=hidden, heads=heads, absent=256)
    max_positions = config.integer("max_position_embeddings", 131072)
    pattern = read_interval(config, "sliding_window_pattern", 6)
    windows = read_windows(
        config,
        layers=read_num_layers(config, "num_hidden_layers"),
        window=read_window(config, absent=4096),
        slides=lambda index: (index + 1) % pattern != 0,
    )
    full = read_rope(
        config,
        dim=head_dim,
        max_positions=max_positions,
        default_theta=1e6,
        layer_type="full_attention",
    )
    local = read_rope(
        config,
        dim=head_dim,
        max_positions=max_positions,
        theta_key="rope_local_base_freq",
        layer_type="sliding_attention",
        scaled=False,
    )
    bias = config.flag("attention_bias", False)
    config.expect("use_bidirectional_attention", False, None)
    config.expect("attn_logit_softcapping", None)
    # Newer files have the pattern under another name, which nothing reads, and layer_types.
    config.ignore(
        ["attention_dropout", "cache_implementation", "hidden_act", "_sliding_window_pattern"]
    )
    return DecoderSpec(
        vocab_size=config.integer("vocab_size"),
        hidden_size=hidden,
        intermediate_size=config.integer("intermediate_size"),
        num_heads=heads,
        num_kv_heads=read_kv_heads(config, heads, absent=4),
        head_dim=head_dim,
        max_positions=max_positions,
        layers=tuple(
            LayerSpec(rope=full if window is None else local, window=window) for window in windows
        ),
        norm="rms",
        norm_eps=config.number("rms_norm_eps", 1e-6),
        mlp="gated",
        activation=read_activation(config, "hidden_activation", "gelu_pytorch_tanh"),
        attn_scale=read_positive(config, "query_pre_attn_scalar", 256.0) ** -0.5,
        tie_embeddings=config.flag("tie_word_embeddings", True),
        norm_offset=1.0,
        norm_casts_first=False,
        residual="sandwich",
        attn_bias=bias,
        attn_out_bias=bias,
        qk_norm="per_head",
        embed_scale=hidden**0.5,
        logit_softcap=read_softcap(config, "final_logit_softcapping", absent=None),
    )


def rules(spec: DecoderSpec) -> list[Rule]:
    return hub_names.decoder(
        spec,
        attention=hub_names.attention(),
        mlp=hub_names.gated_mlp(),
        norms=hub_names.FOUR_NORMS,
    )


FAMILY = Family("gemma3_text", ("gemma3_text",), ("model.", ""), read, rules)
