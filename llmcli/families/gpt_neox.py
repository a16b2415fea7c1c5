"""GPT-NeoX and Pythia (arXiv 2204.06745, 2304.01373).

LayerNorm, rotary positions over a part of each head, attention and MLP side by side or one
after the other, q, k and v fused head by head, a head of its own.
"""

from __future__ import annotations

from llmcli.checkpoint.config import ConfigReader
from llmcli.checkpoint.rope_config import read_rope
from llmcli.checkpoint.rules import Ignore, Rename, Rule, Split, Tie
from llmcli.families.activations import read_activation
from llmcli.families.family import Family
from llmcli.families.sizes import read_head_dim, read_num_layers
from llmcli.spec import DecoderSpec, LayerSpec


def read(config: ConfigReader) -> DecoderSpec:
    hidden, heads = config.integer("hidden_size", 6144), config.integer("num_attention_heads", 64)
    head_dim = read_head_dim(config, hidden=hidden, heads=heads)
    max_positions = config.integer("max_position_embeddings", 2048)
    rope = read_rope(config, dim=head_dim, max_positions=max_positions, default_partial=0.25)
    bias = config.flag("attention_bias", True)
    config.ignore(
        """
        attention_dropout hidden_dropout attention_probs_dropout_prob hidden_dropout_prob
        classifier_dropout is_decoder
        """.split()
    )
    return DecoderSpec(
        vocab_size=config.integer("vocab_size", 50432),
        hidden_size=hidden,
        intermediate_size=config.integer("intermediate_size", 24576),
        num_heads=heads,
        num_kv_heads=heads,
        head_dim=head_dim,
        max_positions=max_positions,
        layers=(LayerSpec(rope=rope),) * read_num_layers(config, "num_hidden_layers", 44),
        norm="layer",
        norm_eps=config.number("layer_norm_eps", 1e-5),
        mlp="plain",
        activation=read_activation(config, "hidden_act", "gelu"),
        attn_scale=head_dim**-0.5,
        tie_embeddings=config.flag("tie_word_embeddings", False),
        residual="parallel" if config.flag("use_parallel_residual", True) else "pre",
        attn_bias=bias,
        attn_out_bias=bias,
        mlp_bias=True,
    )


def rules(spec: DecoderSpec) -> list[Rule]:
    dim, layer = spec.head_dim, "{p}layers.{i}"
    qkv = ("layers.{i}.attn.q_proj", "layers.{i}.attn.k_proj", "layers.{i}.attn.v_proj")
    head = Tie("embed_out.weight", "embed_tokens.weight")
    return [
        Rename("{p}embed_in", "embed_tokens"),
        Rename(f"{layer}.input_layernorm", "layers.{i}.attn_norm"),
        Split(f"{layer}.attention.query_key_value", qkv, spec.num_heads, (dim, dim, dim)),
        Rename(f"{layer}.attention.dense", "layers.{i}.attn.o_proj"),
        Rename(f"{layer}.post_attention_layernorm", "layers.{i}.mlp_norm"),
        Rename(f"{layer}.mlp.dense_h_to_4h", "layers.{i}.mlp.up_proj"),
        Rename(f"{layer}.mlp.dense_4h_to_h", "layers.{i}.mlp.down_proj"),
        Rename("{p}final_layer_norm", "norm"),
        head if spec.tie_embeddings else Rename("embed_out", "lm_head"),
        Ignore(f"{layer}.attention.bias"),
        Ignore(f"{layer}.attention.masked_bias"),
        Ignore(f"{layer}.attention.rotary_emb.inv_freq"),
    ]


FAMILY = Family("gpt_neox", ("gpt_neox",), ("gpt_neox.", ""), read, rules)
