"""StarCoder2 (arXiv 2402.19173): rotary positions, layer norms, a plain MLP, biases everywhere."""

from __future__ import annotations

from llmcli.checkpoint.config import ConfigReader
from llmcli.checkpoint.rope_config import read_rope
from llmcli.checkpoint.rules import Rule
from llmcli.families import hub_names
from llmcli.families.activations import read_activation
from llmcli.families.family import Family
from llmcli.families.sizes import read_head_dim, read_kv_heads, read_num_layers
from llmcli.families.windows import read_window
from llmcli.spec import DecoderSpec, LayerSpec


def read(config: ConfigReader) -> DecoderSpec:
    hidden, heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    head_dim = read_head_dim(config, hidden=hidden, heads=heads)
    max_positions = config.integer("max_position_embeddings", 4096)
    bias = config.flag("use_bias", True)
    rope = read_rope(config, dim=head_dim, max_positions=max_positions)
    layer = LayerSpec(rope=rope, window=read_window(config, absent=None))
    config.expect("mlp_type", "default")
    config.expect("norm_type", "layer_norm")
    config.ignore(["attention_dropout", "residual_dropout", "embedding_dropout"])
    return DecoderSpec(
        vocab_size=config.integer("vocab_size"),
        hidden_size=hidden,
        intermediate_size=config.integer("intermediate_size"),
        num_heads=heads,
        num_kv_heads=read_kv_heads(config, heads, absent=2),
        head_dim=head_dim,
        max_positions=max_positions,
        layers=(layer,) * read_num_layers(config, "num_hidden_layers"),
        norm="layer",
        norm_eps=config.number("norm_epsilon", 1e-5),
        mlp="plain",
        activation=read_activation(config, "hidden_act", "gelu_pytorch_tanh"),
        attn_scale=head_dim**-0.5,
        tie_embeddings=config.flag("tie_word_embeddings", True),
        attn_bias=bias,
        attn_out_bias=bias,
        mlp_bias=bias,
    )


def rules(spec: DecoderSpec) -> list[Rule]:
    mlp = hub_names.plain_mlp(up="c_fc", down="c_proj")
    return hub_names.decoder(spec, attention=hub_names.attention(), mlp=mlp)


FAMILY = Family("starcoder2", ("starcoder2",), ("model.", ""), read, rules)
