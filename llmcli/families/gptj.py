"""GPT-J: rotary positions in neighbouring pairs, attention and MLP side by side behind one norm.

Separate projections without biases, an MLP with them, a head of its own with a bias.
"""

from __future__ import annotations

from llmcli.checkpoint.config import ConfigReader
from llmcli.checkpoint.rules import Ignore, Rename, Rule, Tie
from llmcli.families.activations import read_activation
from llmcli.families.family import Family
from llmcli.families.sizes import read_head_dim, read_num_layers
from llmcli.spec import DecoderSpec, LayerSpec, Rope


def read(config: ConfigReader) -> DecoderSpec:
    hidden, heads = config.integer("n_embd", 4096), config.integer("n_head", 16)
    head_dim = read_head_dim(config, hidden=hidden, heads=heads)
    # The base is a constant of GPT-J's code.
    rope = Rope(theta=10000.0, dim=config.integer("rotary_dim", 64), interleaved=True)
    config.expect("rotary", True)
    config.expect("scale_attn_weights", True)
    config.ignore(
        """
        attn_pdrop embd_pdrop resid_pdrop n_ctx summary_type summary_use_proj summary_activation
        summary_first_dropout summary_proj_to_labels
        """.split()
    )
    return DecoderSpec(
        vocab_size=config.integer("vocab_size", 50400),
        hidden_size=hidden,
        intermediate_size=config.integer("n_inner", 4 * hidden),
        num_heads=heads,
        num_kv_heads=heads,
        head_dim=head_dim,
        max_positions=config.integer("n_positions", 2048),
        layers=(LayerSpec(rope=rope),) * read_num_layers(config, "n_layer", 28),
        norm="layer",
        norm_eps=config.number("layer_norm_epsilon", 1e-5),
        mlp="plain",
        activation=read_activation(config, "activation_function", "gelu_new"),
        attn_scale=head_dim**-0.5,
        tie_embeddings=config.flag("tie_word_embeddings", False),
        residual="parallel_shared",
        mlp_bias=True,
        head_bias=True,
    )


def rules(spec: DecoderSpec) -> list[Rule]:
    layer = "{p}h.{i}"
    tie = Tie("lm_head.weight", "embed_tokens.weight")
    return [
        Rename("{p}wte", "embed_tokens"),
        Rename(f"{layer}.ln_1", "layers.{i}.attn_norm"),
        *(
            Rename(f"{layer}.attn.{name}", f"layers.{{i}}.attn.{name}")
            for name in ("q_proj", "k_proj", "v_proj")
        ),
        Rename(f"{layer}.attn.out_proj", "layers.{i}.attn.o_proj"),
        Rename(f"{layer}.mlp.fc_in", "layers.{i}.mlp.up_proj"),
        Rename(f"{layer}.mlp.fc_out", "layers.{i}.mlp.down_proj"),
        Rename("{p}ln_f", "norm"),
        Rename("lm_head", "lm_head"),
        *([tie] if spec.tie_embeddings else []),
        Ignore(f"{layer}.attn.bias"),
        Ignore(f"{layer}.attn.masked_bias"),
    ]


FAMILY = Family("gptj", ("gptj",), ("transformer.", ""), read, rules)
