"""GPT-Neo: GPT-3's alternation of layers that see everything and layers that see a window.

Learned positions, attention that is not scaled, biases on the output projection alone.
"""

from __future__ import annotations

from typing import Any

from llmcli.checkpoint.config import ConfigReader
from llmcli.checkpoint.escape import printable
from llmcli.checkpoint.rules import Ignore, Rename, Rule, Tie
from llmcli.errors import CheckpointError
from llmcli.families.activations import read_activation
from llmcli.families.family import Family
from llmcli.families.sizes import read_head_dim, read_num_layers
from llmcli.spec import DecoderSpec, LayerSpec, Learned


def read(config: ConfigReader) -> DecoderSpec:
    hidden, heads = config.integer("hidden_size", 2048), config.integer("num_heads", 16)
    config.ignore(
        """
        attention_dropout embed_dropout resid_dropout classifier_dropout summary_type
        summary_use_proj summary_activation summary_first_dropout summary_proj_to_labels
        """.split()
    )
    window = config.integer("window_size", 256)
    layers = tuple(
        LayerSpec(window=window if kind == "local" else None)
        for kind in _kinds(config, read_num_layers(config, "num_layers", 24))
    )
    return DecoderSpec(
        vocab_size=config.integer("vocab_size", 50257),
        hidden_size=hidden,
        intermediate_size=config.integer("intermediate_size", 4 * hidden),
        num_heads=heads,
        num_kv_heads=heads,
        head_dim=read_head_dim(config, hidden=hidden, heads=heads),
        max_positions=config.integer("max_position_embeddings", 2048),
        layers=layers,
        norm="layer",
        norm_eps=config.number("layer_norm_epsilon", 1e-5),
        mlp="plain",
        activation=read_activation(config, "activation_function", "gelu_new"),
        attn_scale=1.0,
        tie_embeddings=config.flag("tie_word_embeddings", True),
        positions=Learned(),
        attn_out_bias=True,
        mlp_bias=True,
    )


def _kinds(config: ConfigReader, layers: int) -> list[str]:
    """Each layer's kind: listed, or as `[[kinds, repeats], ...]`; the list wins."""
    runs: Any = config.raw("attention_types", [[["global", "local"], 12]])
    listed: Any = config.raw("attention_layers")
    try:
        kinds = listed or [kind for part, repeats in runs for kind in part * repeats]
        known = set(kinds) <= {"global", "local"}
    except (TypeError, ValueError):
        kinds, known = [], False
    if not known or len(kinds) != layers:
        raise CheckpointError(
            f"{config.origin} has {layers} layers, but gives them the kinds "
            f"{printable(repr(listed or runs))}",
            hint="each layer is 'global' or 'local'; correct the config, or fetch it again",
        )
    return list(kinds)


def rules(spec: DecoderSpec) -> list[Rule]:
    layer = "{p}h.{i}"
    head = Tie("lm_head.weight", "embed_tokens.weight")
    return [
        Rename("{p}wte", "embed_tokens"),
        Rename("{p}wpe", "embed_positions"),
        Rename(f"{layer}.ln_1", "layers.{i}.attn_norm"),
        *(
            Rename(f"{layer}.attn.attention.{name}", f"layers.{{i}}.attn.{name}")
            for name in ("q_proj", "k_proj", "v_proj")
        ),
        Rename(f"{layer}.attn.attention.out_proj", "layers.{i}.attn.o_proj"),
        Rename(f"{layer}.ln_2", "layers.{i}.mlp_norm"),
        Rename(f"{layer}.mlp.c_fc", "layers.{i}.mlp.up_proj"),
        Rename(f"{layer}.mlp.c_proj", "layers.{i}.mlp.down_proj"),
        Rename("{p}ln_f", "norm"),
        head if spec.tie_embeddings else Rename("lm_head", "lm_head"),
        Ignore(f"{layer}.attn.attention.bias"),
        Ignore(f"{layer}.attn.attention.masked_bias"),
    ]


FAMILY = Family("gpt_neo", ("gpt_neo",), ("transformer.", ""), read, rules)
