"""Phi 1, 1.5 and 2 (arXiv 2306.11644): attention and MLP share their input, biases everywhere."""

from __future__ import annotations

from llmcli.checkpoint.config import ConfigReader
from llmcli.checkpoint.rope_config import read_rope
from llmcli.checkpoint.rules import Rename, Rule
from llmcli.families import hub_names
from llmcli.families.activations import read_activation
from llmcli.families.family import Family
from llmcli.families.sizes import read_head_dim, read_kv_heads, read_num_layers
from llmcli.spec import DecoderSpec, LayerSpec


def read(config: ConfigReader) -> DecoderSpec:
    hidden, heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    head_dim = read_head_dim(config, hidden=hidden, heads=heads)
    max_positions = config.integer("max_position_embeddings", 2048)
    rope = read_rope(config, dim=head_dim, max_positions=max_positions, default_partial=0.5)
    config.ignore(["attention_dropout", "resid_pdrop", "embd_pdrop"])
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
        mlp="plain",
        activation=read_activation(config, "hidden_act", "gelu_new"),
        attn_scale=head_dim**-0.5,
        tie_embeddings=config.flag("tie_word_embeddings", False),
        residual="parallel_shared",
        attn_bias=True,
        attn_out_bias=True,
        qk_norm="per_head" if config.flag("qk_layernorm", False) else None,
        mlp_bias=True,
        head_bias=True,
    )


def rules(spec: DecoderSpec) -> list[Rule]:
    layer, ours = f"{hub_names.LAYER}.self_attn", "layers.{i}.attn"
    norms = [
        Rename(f"{layer}.q_layernorm", f"{ours}.q_norm"),
        Rename(f"{layer}.k_layernorm", f"{ours}.k_norm"),
    ]
    return hub_names.decoder(
        spec,
        attention=[*hub_names.attention(out="dense", qk_norms=False), *norms],
        mlp=hub_names.plain_mlp(up="fc1", down="fc2"),
        norms={"attn_norm": "input_layernorm"},
        final_norm="final_layernorm",
    )


FAMILY = Family("phi", ("phi",), ("model.", ""), read, rules)
