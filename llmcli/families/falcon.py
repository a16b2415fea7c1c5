"""Falcon (arXiv 2311.16867): 7B, 40B and 11B, and the ALiBi models of RefinedWeb.

7B: one key-value head, attention and MLP beside each other behind one norm. 40B: grouped heads
and two norms. RW-1B: ALiBi, as many key-value heads as heads, one part after the other.
"""

from __future__ import annotations

from llmcli.checkpoint.config import ConfigReader
from llmcli.checkpoint.rope_config import read_rope
from llmcli.checkpoint.rules import Ignore, Rename, Rule, Split, Tie
from llmcli.families.activations import read_activation
from llmcli.families.family import Family
from llmcli.families.sizes import read_head_dim, read_num_layers
from llmcli.spec import Alibi, DecoderSpec, LayerSpec, Residual


def read(config: ConfigReader) -> DecoderSpec:
    hidden = config.integer("n_embed", config.integer("hidden_size", 4544))
    heads = config.integer("num_attention_heads", 71)
    head_dim = read_head_dim(config, hidden=hidden, heads=heads)
    max_positions = config.integer("max_position_embeddings", 2048)
    rope = read_rope(config, dim=head_dim, max_positions=max_positions)
    alibi = config.flag("alibi", False)
    kv_heads, residual = _arrangement(config, heads)
    bias = config.flag("bias", False)
    config.expect("apply_residual_connection_post_layernorm", False)
    config.ignore(["attention_dropout", "hidden_dropout", "ff_factor"])
    layer = LayerSpec(rope=None if alibi else rope)
    return DecoderSpec(
        vocab_size=config.integer("vocab_size", 65024),
        hidden_size=hidden,
        intermediate_size=config.integer("ffn_hidden_size", 4 * hidden),
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        max_positions=max_positions,
        layers=(layer,) * read_num_layers(config, "num_hidden_layers", 32),
        norm="layer",
        norm_eps=config.number("layer_norm_epsilon", 1e-5),
        mlp="plain",
        activation=read_activation(config, "activation", "gelu"),
        attn_scale=head_dim**-0.5,
        tie_embeddings=config.flag("tie_word_embeddings", True),
        positions=Alibi(scaled=True, rounded=True) if alibi else None,
        residual=residual,
        attn_bias=bias,
        attn_out_bias=bias,
        mlp_bias=bias,
    )


def _arrangement(config: ConfigReader, heads: int) -> tuple[int, Residual]:
    """How many key-value heads, and how attention and MLP are joined."""
    kv_heads = config.integer("num_kv_heads", heads)
    multi_query = config.flag("multi_query", True)
    parallel = config.flag("parallel_attn", True)
    if config.flag("new_decoder_architecture", False):
        config.expect("parallel_attn", True, None)
        config.expect("num_ln_in_parallel_attn", 2, 1, None)
        shared = config.raw("num_ln_in_parallel_attn") == 1
        return kv_heads, "parallel_shared" if shared else "parallel"
    config.expect("num_ln_in_parallel_attn", None, 1)
    return 1 if multi_query else heads, "parallel_shared" if parallel else "pre"


def rules(spec: DecoderSpec) -> list[Rule]:
    dim, layer = spec.head_dim, "{p}h.{i}"
    qkv = ("layers.{i}.attn.q_proj", "layers.{i}.attn.k_proj", "layers.{i}.attn.v_proj")
    two = spec.residual == "parallel"
    head = Tie("lm_head.weight", "embed_tokens.weight")
    return [
        Rename("{p}word_embeddings", "embed_tokens"),
        Rename(f"{layer}.{'ln_attn' if two else 'input_layernorm'}", "layers.{i}.attn_norm"),
        Split(
            f"{layer}.self_attention.query_key_value",
            qkv,
            spec.num_kv_heads,
            (spec.group_size * dim, dim, dim),
        ),
        Rename(f"{layer}.self_attention.dense", "layers.{i}.attn.o_proj"),
        Rename(f"{layer}.{'ln_mlp' if two else 'post_attention_layernorm'}", "layers.{i}.mlp_norm"),
        Rename(f"{layer}.mlp.dense_h_to_4h", "layers.{i}.mlp.up_proj"),
        Rename(f"{layer}.mlp.dense_4h_to_h", "layers.{i}.mlp.down_proj"),
        Rename("{p}ln_f", "norm"),
        head if spec.tie_embeddings else Rename("lm_head", "lm_head"),
        Ignore(f"{layer}.self_attention.rotary_emb.inv_freq"),
    ]


FAMILY = Family("falcon", ("falcon",), ("transformer.", ""), read, rules)
