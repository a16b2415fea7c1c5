"""Qwen3-Next: gated attention (arXiv 2505.06708) in every fourth layer, gated delta rule elsewhere.

The delta layers (arXiv 2412.06464) keep a state instead of keys; experts beside a gated shared one.
"""

from __future__ import annotations

from typing import Any

from llmcli.checkpoint.config import ConfigReader
from llmcli.checkpoint.escape import printable
from llmcli.checkpoint.rope_config import read_rope
from llmcli.checkpoint.rules import Ignore, Rename, Rule, Split
from llmcli.errors import CheckpointError
from llmcli.families import hub_names
from llmcli.families.activations import read_activation
from llmcli.families.family import Family
from llmcli.families.sizes import read_head_dim, read_kv_heads, read_num_layers
from llmcli.spec import DecoderSpec, Experts, GatedDelta, LayerSpec, Rope


def read(config: ConfigReader) -> DecoderSpec:
    hidden, heads = config.integer("hidden_size", 2048), config.integer("num_attention_heads", 16)
    head_dim = read_head_dim(config, hidden=hidden, heads=heads, absent=256)
    max_positions = config.integer("max_position_embeddings", 32768)
    rope = read_rope(config, dim=head_dim, max_positions=max_positions, default_partial=0.25)
    bias = config.flag("attention_bias", False)
    config.expect("use_sliding_window", False)
    config.expect("hidden_act", "silu")
    config.ignore(
        """
        attention_dropout output_router_logits router_aux_loss_coef sliding_window
        max_window_layers
        """.split()
    )
    return DecoderSpec(
        vocab_size=config.integer("vocab_size", 151936),
        hidden_size=hidden,
        intermediate_size=config.integer("intermediate_size", 5632),
        num_heads=heads,
        num_kv_heads=read_kv_heads(config, heads, absent=2),
        head_dim=head_dim,
        max_positions=max_positions,
        layers=_read_layers(config, rope),
        norm="rms",
        norm_eps=config.number("rms_norm_eps", 1e-6),
        norm_offset=1.0,
        norm_casts_first=False,
        mlp="gated",
        activation=read_activation(config, "hidden_act", "silu"),
        attn_scale=head_dim**-0.5,
        tie_embeddings=config.flag("tie_word_embeddings", False),
        attn_bias=bias,
        attn_out_bias=bias,
        qk_norm="per_head",
        output_gate="elementwise",
        linear=GatedDelta(
            num_key_heads=config.integer("linear_num_key_heads", 16),
            num_value_heads=config.integer("linear_num_value_heads", 32),
            key_dim=config.integer("linear_key_head_dim", 128),
            value_dim=config.integer("linear_value_head_dim", 128),
            conv_kernel=config.integer("linear_conv_kernel_dim", 4),
        ),
        experts=Experts(
            count=config.integer("num_experts", 512),
            top_k=config.integer("num_experts_per_tok", 10),
            intermediate_size=config.integer("moe_intermediate_size", 512),
            normalise=config.flag("norm_topk_prob", True),
            shared_size=config.integer("shared_expert_intermediate_size", 512),
            shared_gate=True,
        ),
    )


def _read_layers(config: ConfigReader, rope: Rope) -> tuple[LayerSpec, ...]:
    count = read_num_layers(config, "num_hidden_layers", 48)
    every = max(config.integer("full_attention_interval", 4), 1)
    step = max(config.integer("decoder_sparse_step", 1), 1)
    dense: Any = config.raw("mlp_only_layers") or []
    kinds: Any = config.raw("layer_types") or [
        "linear_attention" if (index + 1) % every else "full_attention" for index in range(count)
    ]
    if len(kinds) != count or not {*kinds} <= {"linear_attention", "full_attention"}:
        raise CheckpointError(
            f"{config.origin} has {count} layers, but gives them the types "
            f"{printable(repr(kinds))}",
            hint="correct the config, or fetch it again",
        )
    return tuple(
        LayerSpec(
            rope=rope if kind == "full_attention" else None,
            sparse=index not in dense and (index + 1) % step == 0,
            mixer="attention" if kind == "full_attention" else "gated_delta",
        )
        for index, kind in enumerate(kinds)
    )


def rules(spec: DecoderSpec) -> list[Rule]:
    ours, theirs = "layers.{i}.attn", f"{hub_names.LAYER}.linear_attn"
    queries = (f"{ours}.q_proj", f"{ours}.gate_proj")
    attention = [
        # Each head's query rows are followed by its gate's.
        Split(
            f"{hub_names.LAYER}.self_attn.q_proj",
            queries,
            spec.num_heads,
            (spec.head_dim, spec.head_dim),
        ),
        *(
            Rename(f"{hub_names.LAYER}.self_attn.{name}", f"{ours}.{name}")
            for name in ("k_proj", "v_proj", "q_norm", "k_norm", "o_proj")
        ),
        *_delta(spec.linear, ours, theirs),
    ]
    mlp = [
        *hub_names.gated_mlp(),
        *hub_names.experts("mlp", gate="gate_proj", up="up_proj", down="down_proj"),
        *hub_names.shared_mlp("shared_expert"),
        Rename(f"{hub_names.LAYER}.mlp.shared_expert_gate", "layers.{i}.mlp.shared_gate"),
        # A further part predicts the token after the next; generation does not use it.
        Ignore("mtp.*"),
    ]
    return hub_names.decoder(spec, attention=attention, mlp=mlp)


def _delta(linear: GatedDelta | None, ours: str, theirs: str) -> list[Rule]:
    if linear is None:
        return []
    share = linear.num_value_heads // linear.num_key_heads
    values = share * linear.value_dim
    qkvz = tuple(f"{ours}.in_{name}_proj" for name in ("q", "k", "v", "z"))
    sizes = (linear.key_dim, linear.key_dim, values, values)
    return [
        Split(f"{theirs}.in_proj_qkvz", qkvz, linear.num_key_heads, sizes),
        Split(
            f"{theirs}.in_proj_ba",
            (f"{ours}.in_b_proj", f"{ours}.in_a_proj"),
            linear.num_key_heads,
            (share, share),
        ),
        Rename(f"{theirs}.conv1d", f"{ours}.conv"),
        Rename(f"{theirs}.dt_bias", f"{ours}.dt_bias"),
        Rename(f"{theirs}.A_log", f"{ours}.a_log"),
        Rename(f"{theirs}.norm", f"{ours}.norm"),
        Rename(f"{theirs}.out_proj", f"{ours}.out_proj"),
    ]


FAMILY = Family("qwen3_next", ("qwen3_next",), ("model.", ""), read, rules)
