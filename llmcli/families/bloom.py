"""BLOOM (arXiv 2211.05100): ALiBi, a norm on the embedding, q, k and v fused head by head."""

from __future__ import annotations

from llmcli.checkpoint.config import ConfigReader
from llmcli.checkpoint.rules import Rename, Rule, Split, Tie
from llmcli.families.family import Family
from llmcli.families.sizes import read_head_dim, read_num_layers
from llmcli.spec import Alibi, DecoderSpec, LayerSpec


def read(config: ConfigReader) -> DecoderSpec:
    hidden = config.integer("n_embed", config.integer("hidden_size", 64))
    heads = config.integer("num_attention_heads", config.integer("n_head", 8))
    head_dim = read_head_dim(config, hidden=hidden, heads=heads)
    config.expect("apply_residual_connection_post_layernorm", False)
    config.expect("n_inner", None, 4 * hidden)
    # slow_but_exact adds in another order; the offsets and fusions are training's.
    config.ignore(
        """
        attention_dropout hidden_dropout pretraining_tp slow_but_exact offset_alibi
        attention_softmax_in_fp32 bias_dropout_fusion masked_softmax_fusion skip_bias_add
        skip_bias_add_qkv unk_token_id
        """.split()
    )
    layers = "num_hidden_layers" if config.has("num_hidden_layers") else "n_layer"
    return DecoderSpec(
        vocab_size=config.integer("vocab_size", 250880),
        hidden_size=hidden,
        intermediate_size=4 * hidden,
        num_heads=heads,
        num_kv_heads=heads,
        head_dim=head_dim,
        # The length of training: ALiBi has no table that ends.
        max_positions=config.integer("seq_length", 2048),
        layers=(LayerSpec(),) * read_num_layers(config, layers, 2),
        norm="layer",
        norm_eps=config.number("layer_norm_epsilon", 1e-5),
        mlp="plain",
        activation="gelu_tanh",
        attn_scale=head_dim**-0.5,
        tie_embeddings=config.flag("tie_word_embeddings", True),
        positions=Alibi(),
        embed_norm=True,
        attn_bias=True,
        attn_out_bias=True,
        mlp_bias=True,
    )


def rules(spec: DecoderSpec) -> list[Rule]:
    dim, layer = spec.head_dim, "{p}h.{i}"
    qkv = ("layers.{i}.attn.q_proj", "layers.{i}.attn.k_proj", "layers.{i}.attn.v_proj")
    head = Tie("lm_head.weight", "embed_tokens.weight")
    return [
        Rename("{p}word_embeddings", "embed_tokens"),
        Rename("{p}word_embeddings_layernorm", "embed_norm"),
        Rename(f"{layer}.input_layernorm", "layers.{i}.attn_norm"),
        Split(f"{layer}.self_attention.query_key_value", qkv, spec.num_heads, (dim, dim, dim)),
        Rename(f"{layer}.self_attention.dense", "layers.{i}.attn.o_proj"),
        Rename(f"{layer}.post_attention_layernorm", "layers.{i}.mlp_norm"),
        Rename(f"{layer}.mlp.dense_h_to_4h", "layers.{i}.mlp.up_proj"),
        Rename(f"{layer}.mlp.dense_4h_to_h", "layers.{i}.mlp.down_proj"),
        Rename("{p}ln_f", "norm"),
        head if spec.tie_embeddings else Rename("lm_head", "lm_head"),
    ]


FAMILY = Family("bloom", ("bloom",), ("transformer.", ""), read, rules)
