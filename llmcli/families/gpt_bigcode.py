"""GPT-BigCode: SantaCoder and StarCoder (arXiv 2305.06161), a GPT-2 with multi-query attention.

The fused qkv is a plain linear map, one key-value head (or all) behind the queries.
"""

from __future__ import annotations

from llmcli.checkpoint.config import ConfigReader
from llmcli.checkpoint.rules import Ignore, Rename, Rule, Split, Tie
from llmcli.families.activations import read_activation
from llmcli.families.family import Family
from llmcli.families.sizes import read_head_dim, read_num_layers
from llmcli.spec import DecoderSpec, LayerSpec, Learned


def read(config: ConfigReader) -> DecoderSpec:
    hidden, heads = config.integer("n_embd", 768), config.integer("n_head", 12)
    head_dim = read_head_dim(config, hidden=hidden, heads=heads)
    kv_heads = 1 if config.flag("multi_query", True) else heads
    scaled = config.flag("scale_attn_weights", True)
    config.expect("num_key_value_heads", kv_heads)
    config.expect("add_cross_attention", False)
    # The rest is of training, or of how the same function is computed.
    config.ignore(
        """
        attn_pdrop embd_pdrop resid_pdrop attention_softmax_in_fp32
        scale_attention_softmax_in_fp32 inference_runner max_batch_size max_sequence_length
        pad_key_length pre_allocate_kv_cache validate_runner_input summary_type summary_use_proj
        summary_activation summary_first_dropout summary_proj_to_labels
        """.split()
    )
    return DecoderSpec(
        vocab_size=config.integer("vocab_size", 50257),
        hidden_size=hidden,
        intermediate_size=config.integer("n_inner", 4 * hidden),
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        max_positions=config.integer("n_positions", 1024),
        layers=(LayerSpec(),) * read_num_layers(config, "n_layer", 12),
        norm="layer",
        norm_eps=config.number("layer_norm_epsilon", 1e-5),
        mlp="plain",
        activation=read_activation(config, "activation_function", "gelu_pytorch_tanh"),
        attn_scale=head_dim**-0.5 if scaled else 1.0,
        tie_embeddings=config.flag("tie_word_embeddings", True),
        positions=Learned(),
        attn_bias=True,
        attn_out_bias=True,
        mlp_bias=True,
    )


def rules(spec: DecoderSpec) -> list[Rule]:
    dim, layer = spec.head_dim, "{p}h.{i}"
    qkv = ("layers.{i}.attn.q_proj", "layers.{i}.attn.k_proj", "layers.{i}.attn.v_proj")
    sizes = (spec.group_size * dim, dim, dim)
    head = Tie("lm_head.weight", "embed_tokens.weight")
    return [
        Rename("{p}wte", "embed_tokens"),
        Rename("{p}wpe", "embed_positions"),
        Rename(f"{layer}.ln_1", "layers.{i}.attn_norm"),
        Split(f"{layer}.attn.c_attn", qkv, spec.num_kv_heads, sizes),
        Rename(f"{layer}.attn.c_proj", "layers.{i}.attn.o_proj"),
        Rename(f"{layer}.ln_2", "layers.{i}.mlp_norm"),
        Rename(f"{layer}.mlp.c_fc", "layers.{i}.mlp.up_proj"),
        Rename(f"{layer}.mlp.c_proj", "layers.{i}.mlp.down_proj"),
        Rename("{p}ln_f", "norm"),
        head if spec.tie_embeddings else Rename("lm_head", "lm_head"),
        Ignore(f"{layer}.attn.bias"),
        Ignore(f"{layer}.attn.masked_bias"),
    ]


FAMILY = Family("gpt_bigcode", ("gpt_bigcode",), ("transformer.", ""), read, rules)
