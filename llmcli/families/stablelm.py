"""StableLM 2, Zephyr and kin (arXiv 2402.17834).

Llama's form with layer norms and rotary positions over a quarter of each head; in some sizes
attention and MLP share their input, and each head has a norm of queries and keys of its own.
"""

from __future__ import annotations

from llmcli.checkpoint.config import ConfigReader
from llmcli.checkpoint.rope_config import read_rope
from llmcli.checkpoint.rules import Rule, Stack
from llmcli.families import hub_names
from llmcli.families.activations import read_activation
from llmcli.families.family import Family
from llmcli.families.sizes import read_head_dim, read_kv_heads, read_num_layers
from llmcli.spec import DecoderSpec, LayerSpec


def read(config: ConfigReader) -> DecoderSpec:
    hidden, heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    head_dim = read_head_dim(config, hidden=hidden, heads=heads)
    max_positions = config.integer("max_position_embeddings", 4096)
    rope = read_rope(config, dim=head_dim, max_positions=max_positions, default_partial=0.25)
    config.ignore(["attention_dropout", "hidden_dropout"])
    return DecoderSpec(
        vocab_size=config.integer("vocab_size"),
        hidden_size=hidden,
        intermediate_size=config.integer("intermediate_size"),
        num_heads=heads,
        num_kv_heads=read_kv_heads(config, heads, absent=32),
        head_dim=head_dim,
        max_positions=max_positions,
        layers=(LayerSpec(rope=rope),) * read_num_layers(config, "num_hidden_layers"),
        norm="layer",
        norm_eps=config.number("layer_norm_eps", 1e-5),
        mlp="gated",
        activation=read_activation(config, "hidden_act", "silu"),
        attn_scale=head_dim**-0.5,
        tie_embeddings=config.flag("tie_word_embeddings", False),
        residual="parallel_shared" if config.flag("use_parallel_residual", False) else "pre",
        attn_bias=config.flag("use_qkv_bias", False),
        qk_norm="each_head" if config.flag("qk_layernorm", False) else None,
    )


def rules(spec: DecoderSpec) -> list[Rule]:
    layer, ours = f"{hub_names.LAYER}.self_attn", "layers.{i}.attn"
    norms = [
        Stack(f"{layer}.q_layernorm.norms.{{h}}", f"{ours}.q_norm", spec.num_heads),
        Stack(f"{layer}.k_layernorm.norms.{{h}}", f"{ours}.k_norm", spec.num_kv_heads),
    ]
    attention = [*hub_names.attention(qk_norms=False), *norms]
    return hub_names.decoder(spec, attention=attention, mlp=hub_names.gated_mlp())


FAMILY = Family("stablelm", ("stablelm",), ("model.", ""), read, rules)
