"""gpt-oss (arXiv 2508.10925): learned attention sinks, windows in every other layer, experts.

Experts are stacked in one tensor each way, gate and up rows taking turns; clamped SwiGLU.
"""

from __future__ import annotations

from llmcli.checkpoint.config import ConfigReader
from llmcli.checkpoint.rope_config import read_rope
from llmcli.checkpoint.rules import Rename, Rule, Unstack
from llmcli.families import hub_names
from llmcli.families.family import Family
from llmcli.families.sizes import read_head_dim, read_kv_heads, read_num_layers
from llmcli.families.windows import read_window, read_windows
from llmcli.spec import DecoderSpec, Experts, LayerSpec, Rope, YarnScaling

# What the model type means by no rotary settings at all; 0.1 ln 32 + 1 is YaRN's own factor.
_DEFAULT_YARN = YarnScaling(
    factor=32.0, original_max_positions=4096, attention_factor=1.3465735902799727, truncate=False
)


def read(config: ConfigReader) -> DecoderSpec:
    heads, hidden = config.integer("num_attention_heads", 64), config.integer("hidden_size", 2880)
    head_dim = read_head_dim(config, hidden=hidden, heads=heads, absent=64)
    layers = read_num_layers(config, "num_hidden_layers", 36)
    windows = read_windows(
        config,
        layers=layers,
        window=read_window(config, absent=128),
        slides=lambda index: index % 2 == 0,
    )
    max_positions = config.integer("max_position_embeddings", 131072)
    rope = _read_rope(config, head_dim, max_positions)
    inner, bias = config.integer("intermediate_size", 2880), config.flag("attention_bias", True)
    config.expect("hidden_act", "silu")
    config.expect("swiglu_alpha", 1.702)
    config.expect("swiglu_limit", 7.0)
    # The second names repeat sizes that are read; the rest is of training.
    config.ignore(
        """
        attention_dropout output_router_logits router_aux_loss_coef initial_context_length
        experts_per_token num_experts
        """.split()
    )
    return DecoderSpec(
        vocab_size=config.integer("vocab_size", 201088),
        hidden_size=hidden,
        intermediate_size=inner,
        num_heads=heads,
        num_kv_heads=read_kv_heads(config, heads, absent=8),
        head_dim=head_dim,
        max_positions=max_positions,
        layers=tuple(LayerSpec(rope=rope, window=window, sparse=True) for window in windows),
        norm="rms",
        norm_eps=config.number("rms_norm_eps", 1e-5),
        norm_casts_first=False,
        mlp="gated",
        activation="clamped_swiglu",
        attn_scale=head_dim**-0.5,
        tie_embeddings=config.flag("tie_word_embeddings", False),
        attn_bias=bias,
        attn_out_bias=bias,
        sinks=True,
        experts=Experts(
            count=config.integer("num_local_experts", 128),
            top_k=config.integer("num_experts_per_tok", 4),
            intermediate_size=inner,
            router_bias=True,
            expert_bias=True,
        ),
    )


def _read_rope(config: ConfigReader, head_dim: int, max_positions: int) -> Rope:
    rope = read_rope(config, dim=head_dim, max_positions=max_positions, default_theta=150000.0)
    if config.raw("rope_parameters") is None and config.raw("rope_scaling") is None:
        return Rope(theta=rope.theta, dim=head_dim, scaling=_DEFAULT_YARN)
    return rope


def rules(spec: DecoderSpec) -> list[Rule]:
    theirs, ours = f"{hub_names.LAYER}.mlp", "layers.{i}.mlp"
    inner = spec.experts.intermediate_size if spec.experts else 0
    both = (f"{ours}.experts.{{e}}.gate_proj", f"{ours}.experts.{{e}}.up_proj")
    down = (f"{ours}.experts.{{e}}.down_proj",)
    stacked: list[Rule] = [
        Rename(f"{theirs}.router", f"{ours}.router"),
        *(
            Unstack(f"{theirs}.experts.gate_up_proj{end}", suffix, both, inner, (1, 1), turned)
            for end, suffix, turned in (("", ".weight", True), ("_bias", ".bias", False))
        ),
        *(
            Unstack(
                f"{theirs}.experts.down_proj{end}", suffix, down, 1, (spec.hidden_size,), turned
            )
            for end, suffix, turned in (("", ".weight", True), ("_bias", ".bias", False))
        ),
    ]
    sinks = Rename(f"{hub_names.LAYER}.self_attn.sinks", "layers.{i}.attn.sinks")
    return hub_names.decoder(spec, attention=[*hub_names.attention(), sinks], mlp=stacked)


FAMILY = Family("gpt_oss", ("gpt_oss",), ("model.", ""), read, rules)
