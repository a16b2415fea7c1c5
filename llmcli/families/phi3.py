"""Phi-3, Phi-3.5 and Phi-4-mini (arXiv 2404.14219).

Llama's form with q, k, v in one matrix and gate, up in another, a sliding window in some sizes,
and LongRoPE ("su" in older files) in those of a long context.
"""

from __future__ import annotations

from llmcli.checkpoint.config import ConfigReader
from llmcli.checkpoint.rope_config import read_rope
from llmcli.checkpoint.rules import Rename, Rule, Split
from llmcli.families import hub_names
from llmcli.families.activations import read_activation
from llmcli.families.family import Family
from llmcli.families.sizes import read_head_dim, read_kv_heads, read_num_layers
from llmcli.families.windows import read_window
from llmcli.spec import DecoderSpec, LayerSpec


def read(config: ConfigReader) -> DecoderSpec:
    hidden, heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    head_dim = read_head_dim(config, hidden=hidden, heads=heads)
    max_positions = config.integer("max_position_embeddings", 4096)
    rope = read_rope(
        config,
        dim=head_dim,
        max_positions=max_positions,
        default_original=4096,
        # An older revision called its LongRoPE by the name of another scaling.
        kinds={"yarn": "longrope"},
    )
    layer = LayerSpec(rope=rope, window=read_window(config, absent=None))
    # Phi-4-mini's files say what every Phi-3 does not have.
    config.expect("attention_bias", False)
    config.expect("mlp_bias", False)
    config.expect("lm_head_bias", False)
    config.expect("full_attn_mod", 1)
    config.expect("interpolate_factor", 1)
    config.ignore(["attention_dropout", "resid_pdrop", "embd_pdrop"])
    return DecoderSpec(
        vocab_size=config.integer("vocab_size"),
        hidden_size=hidden,
        intermediate_size=config.integer("intermediate_size"),
        num_heads=heads,
        num_kv_heads=read_kv_heads(config, heads),
        head_dim=head_dim,
        max_positions=max_positions,
        layers=(layer,) * read_num_layers(config, "num_hidden_layers"),
        norm="rms",
        norm_eps=config.number("rms_norm_eps", 1e-5),
        mlp="gated",
        activation=read_activation(config, "hidden_act", "silu"),
        attn_scale=head_dim**-0.5,
        tie_embeddings=config.flag("tie_word_embeddings", False),
    )


def rules(spec: DecoderSpec) -> list[Rule]:
    width, kv_width = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    inner = spec.intermediate_size
    layer, ours = hub_names.LAYER, "layers.{i}"
    qkv = tuple(f"{ours}.attn.{name}" for name in ("q_proj", "k_proj", "v_proj"))
    gate_up = (f"{ours}.mlp.gate_proj", f"{ours}.mlp.up_proj")
    return hub_names.decoder(
        spec,
        attention=[
            Split(f"{layer}.self_attn.qkv_proj", qkv, 1, (width, kv_width, kv_width)),
            Rename(f"{layer}.self_attn.o_proj", f"{ours}.attn.o_proj"),
        ],
        mlp=[
            Split(f"{layer}.mlp.gate_up_proj", gate_up, 1, (inner, inner)),
            Rename(f"{layer}.mlp.down_proj", f"{ours}.mlp.down_proj"),
        ],
    )


FAMILY = Family("phi3", ("phi3",), ("model.", ""), read, rules)
