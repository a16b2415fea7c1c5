"""OPT (arXiv 2205.01068): learned positions read two rows on, ReLU, biases everywhere.

The 350m model differs: norms after the additions, and embeddings narrower than the layers.
"""

from __future__ import annotations

from llmcli.checkpoint.config import ConfigReader
from llmcli.checkpoint.rules import Rename, Rule, Tie
from llmcli.families.activations import read_activation
from llmcli.families.family import Family
from llmcli.families.sizes import read_head_dim, read_num_layers
from llmcli.spec import DecoderSpec, LayerSpec, Learned


def read(config: ConfigReader) -> DecoderSpec:
    hidden, heads = config.integer("hidden_size", 768), config.integer("num_attention_heads", 12)
    head_dim = read_head_dim(config, hidden=hidden, heads=heads)
    before = config.flag("do_layer_norm_before", True)
    removed = config.flag("_remove_final_layer_norm", False)
    width = config.integer("word_embed_proj_dim", hidden)
    bias = config.flag("enable_bias", True)
    config.expect("layer_norm_elementwise_affine", True)
    config.ignore("dropout attention_dropout activation_dropout layerdrop init_std".split())
    return DecoderSpec(
        vocab_size=config.integer("vocab_size", 50272),
        hidden_size=hidden,
        intermediate_size=config.integer("ffn_dim", 3072),
        num_heads=heads,
        num_kv_heads=heads,
        head_dim=head_dim,
        max_positions=config.integer("max_position_embeddings", 2048),
        layers=(LayerSpec(),) * read_num_layers(config, "num_hidden_layers", 12),
        norm="layer",
        norm_eps=1e-5,  # torch's default: OPT's config has no key for it
        mlp="plain",
        activation=read_activation(config, "activation_function", "relu"),
        attn_scale=head_dim**-0.5,
        tie_embeddings=config.flag("tie_word_embeddings", True),
        positions=Learned(offset=2),
        residual="pre" if before else "post",
        final_norm=before and not removed,
        embed_size=None if width == hidden else width,
        attn_bias=bias,
        attn_out_bias=bias,
        mlp_bias=bias,
    )


def rules(spec: DecoderSpec) -> list[Rule]:
    layer = "{p}layers.{i}"
    head = Tie("lm_head.weight", "embed_tokens.weight")
    return [
        Rename("{p}embed_tokens", "embed_tokens"),
        Rename("{p}embed_positions", "embed_positions"),
        Rename("{p}project_in", "embed_proj"),
        Rename(f"{layer}.self_attn_layer_norm", "layers.{i}.attn_norm"),
        *(
            Rename(f"{layer}.self_attn.{name}", f"layers.{{i}}.attn.{name}")
            for name in ("q_proj", "k_proj", "v_proj")
        ),
        Rename(f"{layer}.self_attn.out_proj", "layers.{i}.attn.o_proj"),
        Rename(f"{layer}.final_layer_norm", "layers.{i}.mlp_norm"),
        Rename(f"{layer}.fc1", "layers.{i}.mlp.up_proj"),
        Rename(f"{layer}.fc2", "layers.{i}.mlp.down_proj"),
        Rename("{p}final_layer_norm", "norm"),
        Rename("{p}project_out", "head_proj"),
        head if spec.tie_embeddings else Rename("lm_head", "lm_head"),
    ]


FAMILY = Family("opt", ("opt",), ("model.decoder.", "decoder."), read, rules)
