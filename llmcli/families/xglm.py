"""XGLM (arXiv 2112.10668): sinusoidal positions read two rows on, embeddings scaled up."""

from __future__ import annotations

from llmcli.checkpoint.config import ConfigReader
from llmcli.checkpoint.rules import Ignore, Rename, Rule, Tie
from llmcli.families.activations import read_activation
from llmcli.families.family import Family
from llmcli.families.sizes import read_head_dim, read_num_layers
from llmcli.spec import DecoderSpec, LayerSpec, Sinusoidal


def read(config: ConfigReader) -> DecoderSpec:
    hidden, heads = config.integer("d_model", 1024), config.integer("attention_heads", 16)
    head_dim = read_head_dim(config, hidden=hidden, heads=heads)
    scaled = config.flag("scale_embedding", True)
    config.expect("add_cross_attention", False)
    config.ignore("dropout attention_dropout activation_dropout layerdrop init_std".split())
    return DecoderSpec(
        vocab_size=config.integer("vocab_size", 256008),
        hidden_size=hidden,
        intermediate_size=config.integer("ffn_dim", 4096),
        num_heads=heads,
        num_kv_heads=heads,
        head_dim=head_dim,
        max_positions=config.integer("max_position_embeddings", 2048),
        layers=(LayerSpec(),) * read_num_layers(config, "num_layers", 24),
        norm="layer",
        norm_eps=1e-5,  # torch's default: XGLM's config has no key for it
        mlp="plain",
        activation=read_activation(config, "activation_function", "gelu"),
        attn_scale=head_dim**-0.5,
        tie_embeddings=config.flag("tie_word_embeddings", True),
        positions=Sinusoidal(offset=2),
        attn_bias=True,
        attn_out_bias=True,
        mlp_bias=True,
        embed_scale=hidden**0.5 if scaled else 1.0,
    )


def rules(spec: DecoderSpec) -> list[Rule]:
    layer = "{p}layers.{i}"
    head = Tie("lm_head.weight", "embed_tokens.weight")
    return [
        Rename("{p}embed_tokens", "embed_tokens"),
        Rename(f"{layer}.self_attn_layer_norm", "layers.{i}.attn_norm"),
        *(
            Rename(f"{layer}.self_attn.{name}", f"layers.{{i}}.attn.{name}")
            for name in ("q_proj", "k_proj", "v_proj")
        ),
        Rename(f"{layer}.self_attn.out_proj", "layers.{i}.attn.o_proj"),
        Rename(f"{layer}.final_layer_norm", "layers.{i}.mlp_norm"),
        Rename(f"{layer}.fc1", "layers.{i}.mlp.up_proj"),
        Rename(f"{layer}.fc2", "layers.{i}.mlp.down_proj"),
        Rename("{p}layer_norm", "norm"),
        head if spec.tie_embeddings else Rename("lm_head", "lm_head"),
        Ignore("{p}embed_positions.weights"),
    ]


FAMILY = Family("xglm", ("xglm",), ("model.", ""), read, rules)
