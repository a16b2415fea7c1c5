"""SmolLM3: Llama's form, in which every fourth layer has no rotary positions (arXiv 2501.18795)."""

from __future__ import annotations

from llmcli.checkpoint.config import ConfigReader
from llmcli.checkpoint.rope_config import read_rope
from llmcli.checkpoint.rules import Rule
from llmcli.families import hub_names
from llmcli.families.activations import read_activation
from llmcli.families.family import Family
from llmcli.families.sizes import (
    read_flags,
    read_head_dim,
    read_interval,
    read_kv_heads,
    read_num_layers,
)
from llmcli.families.windows import read_window, read_windows
from llmcli.spec import DecoderSpec, LayerSpec


def read(config: ConfigReader) -> DecoderSpec:
    hidden, heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    head_dim = read_head_dim(config, hidden=hidden, heads=heads)
    max_positions = config.integer("max_position_embeddings", 32768)
    bias = config.flag("attention_bias", False)
    rope = read_rope(config, dim=head_dim, max_positions=max_positions, default_theta=2e6)
    num_layers = read_num_layers(config, "num_hidden_layers")
    interval = read_interval(config, "no_rope_layer_interval", 4)
    every = tuple(int((index + 1) % interval != 0) for index in range(num_layers))
    turns = read_flags(config, "no_rope_layers", num_layers, absent=every)
    window = read_window(config, absent=None) if config.flag("use_sliding_window", False) else None
    windows = read_windows(
        config,
        layers=num_layers,
        window=window,
        slides=lambda index: window is not None and not turns[index],
    )
    # pretraining_tp only says how the training run was cut over devices.
    config.ignore(["pretraining_tp", "attention_dropout", "sliding_window", "max_window_layers"])
    return DecoderSpec(
        vocab_size=config.integer("vocab_size"),
        hidden_size=hidden,
        intermediate_size=config.integer("intermediate_size"),
        num_heads=heads,
        num_kv_heads=read_kv_heads(config, heads, absent=4),
        head_dim=head_dim,
        max_positions=max_positions,
        layers=tuple(
            LayerSpec(rope=rope if turned else None, window=window)
            for turned, window in zip(turns, windows, strict=True)
        ),
        norm="rms",
        norm_eps=config.number("rms_norm_eps", 1e-6),
        mlp="gated",
        activation=read_activation(config, "hidden_act", "silu"),
        attn_scale=head_dim**-0.5,
        tie_embeddings=config.flag("tie_word_embeddings", True),
        attn_bias=bias,
        attn_out_bias=bias,
        mlp_bias=config.flag("mlp_bias", False),
    )


def rules(spec: DecoderSpec) -> list[Rule]:
    return hub_names.decoder(spec, attention=hub_names.attention(), mlp=hub_names.gated_mlp())


FAMILY = Family("smollm3", ("smollm3",), ("model.", ""), read, rules)
