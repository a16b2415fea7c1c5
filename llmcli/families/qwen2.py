"""Qwen 2 and 2.5: Llama's form with biases on q, k and v (arXiv 2407.10671).

`use_sliding_window` false means full attention, whatever `sliding_window` says.
"""

from __future__ import annotations

from llmcli.checkpoint.config import ConfigReader
from llmcli.checkpoint.rope_config import read_rope
from llmcli.checkpoint.rules import Rule
from llmcli.families import hub_names
from llmcli.families.activations import read_activation
from llmcli.families.family import Family
from llmcli.families.sizes import read_head_dim, read_kv_heads, read_num_layers
from llmcli.families.windows import read_top_windows
from llmcli.spec import DecoderSpec, LayerSpec


def read(config: ConfigReader) -> DecoderSpec:
    hidden, heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    head_dim = read_head_dim(config, hidden=hidden, heads=heads)
    max_positions = config.integer("max_position_embeddings", 32768)
    rope = read_rope(config, dim=head_dim, max_positions=max_positions)
    windows = read_top_windows(config, read_num_layers(config, "num_hidden_layers"))
    config.expect("use_mrope", False)
    config.ignore(["attention_dropout"])
    return DecoderSpec(
        vocab_size=config.integer("vocab_size"),
        hidden_size=hidden,
        intermediate_size=config.integer("intermediate_size"),
        num_heads=heads,
        num_kv_heads=read_kv_heads(config, heads, absent=32),
        head_dim=head_dim,
        max_positions=max_positions,
        layers=tuple(LayerSpec(rope=rope, window=window) for window in windows),
        norm="rms",
        norm_eps=config.number("rms_norm_eps", 1e-6),
        mlp="gated",
        activation=read_activation(config, "hidden_act", "silu"),
        attn_scale=head_dim**-0.5,
        tie_embeddings=config.flag("tie_word_embeddings", False),
        attn_bias=True,
    )


def rules(spec: DecoderSpec) -> list[Rule]:
    return hub_names.decoder(spec, attention=hub_names.attention(), mlp=hub_names.gated_mlp())


FAMILY = Family("qwen2", ("qwen2",), ("model.", ""), read, rules)
