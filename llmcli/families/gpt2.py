"""GPT-2 and the models that keep its form (DistilGPT-2, DialoGPT, CodeParrot).

Learned positions, pre-norm LayerNorm, fused qkv stored as [C_in, C_out], GELU in its tanh
form ("gelu_new"), a head tied to the embedding.
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
    scaled = config.flag("scale_attn_weights", True)
    config.expect("scale_attn_by_inverse_layer_idx", False)
    config.expect("add_cross_attention", False)
    config.expect("reorder_and_upcast_attn", False, True)  # a training matter: same function
    # `hidden_act` and `intermediate_size` are not GPT-2's words; its own code never reads them.
    config.ignore(
        """
        attn_pdrop embd_pdrop resid_pdrop n_ctx hidden_act intermediate_size type_vocab_size
        summary_type summary_use_proj summary_activation summary_first_dropout
        summary_proj_to_labels attention_probs_dropout_prob hidden_dropout_prob
        """.split()
    )
    return DecoderSpec(
        vocab_size=config.integer("vocab_size", 50257),
        hidden_size=hidden,
        intermediate_size=config.integer("n_inner", 4 * hidden),
        num_heads=heads,
        num_kv_heads=heads,
        head_dim=head_dim,
        max_positions=config.integer("n_positions", 1024),
        layers=(LayerSpec(),) * read_num_layers(config, "n_layer", 12),
        norm="layer",
        norm_eps=config.number("layer_norm_epsilon", 1e-5),
        mlp="plain",
        activation=read_activation(config, "activation_function", "gelu_new"),
        attn_scale=head_dim**-0.5 if scaled else 1.0,
        tie_embeddings=config.flag("tie_word_embeddings", True),
        positions=Learned(),
        attn_bias=True,
        attn_out_bias=True,
        mlp_bias=True,
    )


def rules(spec: DecoderSpec) -> list[Rule]:
    width, layer = spec.num_heads * spec.head_dim, "{p}h.{i}"
    qkv = ("layers.{i}.attn.q_proj", "layers.{i}.attn.k_proj", "layers.{i}.attn.v_proj")
    head = Tie("lm_head.weight", "embed_tokens.weight")
    return [
        Rename("{p}wte", "embed_tokens"),
        Rename("{p}wpe", "embed_positions"),
        Rename(f"{layer}.ln_1", "layers.{i}.attn_norm"),
        Split(f"{layer}.attn.c_attn", qkv, 1, (width, width, width), transpose=True),
        Rename(f"{layer}.attn.c_proj", "layers.{i}.attn.o_proj", transpose=True),
        Rename(f"{layer}.ln_2", "layers.{i}.mlp_norm"),
        Rename(f"{layer}.mlp.c_fc", "layers.{i}.mlp.up_proj", transpose=True),
        Rename(f"{layer}.mlp.c_proj", "layers.{i}.mlp.down_proj", transpose=True),
        Rename("{p}ln_f", "norm"),
        head if spec.tie_embeddings else Rename("lm_head", "lm_head"),
        Ignore(f"{layer}.attn.bias"),
        Ignore(f"{layer}.attn.masked_bias"),
    ]


FAMILY = Family("gpt2", ("gpt2",), ("transformer.", ""), read, rules)
