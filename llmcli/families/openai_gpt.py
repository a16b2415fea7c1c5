"""The first GPT: the original Transformer's decoder, norms after the additions (arXiv 1706.03762).

Learned positions, fused qkv stored as [C_in, C_out], no final norm, a tied head.
"""

from __future__ import annotations

from typing import Final

from llmcli.checkpoint.config import ConfigReader
from llmcli.checkpoint.rules import Ignore, Rename, Rule, Split, Tie
from llmcli.families.family import Family
from llmcli.families.sizes import read_head_dim, read_num_layers
from llmcli.spec import Activation, DecoderSpec, LayerSpec, Learned

# In this family "gelu" means the tanh form.
_ACTIVATIONS: Final[dict[str, Activation]] = {
    "gelu": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}


def read(config: ConfigReader) -> DecoderSpec:
    hidden, heads = config.integer("n_embd", 768), config.integer("n_head", 12)
    head_dim = read_head_dim(config, hidden=hidden, heads=heads)
    config.ignore(
        """
        attn_pdrop embd_pdrop resid_pdrop n_ctx n_special predict_special_tokens summary_type
        summary_use_proj summary_activation summary_first_dropout summary_proj_to_labels
        """.split()
    )
    return DecoderSpec(
        vocab_size=config.integer("vocab_size", 40478),
        hidden_size=hidden,
        intermediate_size=4 * hidden,
        num_heads=heads,
        num_kv_heads=heads,
        head_dim=head_dim,
        max_positions=config.integer("n_positions", 512),
        layers=(LayerSpec(),) * read_num_layers(config, "n_layer", 12),
        norm="layer",
        norm_eps=config.number("layer_norm_epsilon", 1e-5),
        mlp="plain",
        activation=config.choice("afn", _ACTIVATIONS, "gelu"),
        attn_scale=head_dim**-0.5,
        tie_embeddings=config.flag("tie_word_embeddings", True),
        positions=Learned(),
        residual="post",
        final_norm=False,
        attn_bias=True,
        attn_out_bias=True,
        mlp_bias=True,
    )


def rules(spec: DecoderSpec) -> list[Rule]:
    width, layer = spec.num_heads * spec.head_dim, "{p}h.{i}"
    qkv = ("layers.{i}.attn.q_proj", "layers.{i}.attn.k_proj", "layers.{i}.attn.v_proj")
    head = Tie("lm_head.weight", "embed_tokens.weight")
    return [
        Rename("{p}tokens_embed", "embed_tokens"),
        Rename("{p}positions_embed", "embed_positions"),
        Split(f"{layer}.attn.c_attn", qkv, 1, (width, width, width), transpose=True),
        Rename(f"{layer}.attn.c_proj", "layers.{i}.attn.o_proj", transpose=True),
        Rename(f"{layer}.ln_1", "layers.{i}.attn_norm"),
        Rename(f"{layer}.mlp.c_fc", "layers.{i}.mlp.up_proj", transpose=True),
        Rename(f"{layer}.mlp.c_proj", "layers.{i}.mlp.down_proj", transpose=True),
        Rename(f"{layer}.ln_2", "layers.{i}.mlp_norm"),
        head if spec.tie_embeddings else Rename("lm_head", "lm_head"),
        Ignore("{p}position_ids"),
        Ignore(f"{layer}.attn.bias"),
    ]


FAMILY = Family("openai-gpt", ("openai-gpt",), ("transformer.", ""), read, rules)
