"""Qwen3: Llama's form with norms of queries and keys (arXiv 2505.09388).

Also the published checkpoints of gated attention (arXiv 2505.06708), which name themselves
qwen3: their q_proj holds, for each key-value head, its queries and then their gates.
"""

from __future__ import annotations

from llmcli.checkpoint.config import ConfigReader
from llmcli.checkpoint.rope_config import read_rope
from llmcli.checkpoint.rules import Rule, Split
from llmcli.errors import CheckpointError
from llmcli.families import hub_names
from llmcli.families.activations import read_activation
from llmcli.families.family import Family
from llmcli.families.sizes import read_head_dim, read_kv_heads, read_num_layers
from llmcli.families.windows import read_top_windows
from llmcli.spec import DecoderSpec, LayerSpec, OutputGate


def read(config: ConfigReader) -> DecoderSpec:
    hidden, heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    head_dim = read_head_dim(config, hidden=hidden, heads=heads, absent=128)
    max_positions = config.integer("max_position_embeddings", 32768)
    rope = read_rope(config, dim=head_dim, max_positions=max_positions)
    windows = read_top_windows(config, read_num_layers(config, "num_hidden_layers"))
    bias = config.flag("qkv_bias", config.flag("attention_bias", False))
    config.ignore(["attention_dropout"])
    return DecoderSpec(
        vocab_size=config.integer("vocab_size"),
        hidden_size=hidden,
        intermediate_size=config.integer("intermediate_size"),
        num_heads=heads,
        num_kv_heads=read_kv_heads(config, heads, absent=32),
        head_dim=head_dim,
        max_positions=max_positions,
        layers=tuple(LayerSpec(rope=rope, window=window) for window in windows),
        norm="rms",
        norm_eps=config.number("rms_norm_eps", 1e-6),
        mlp="gated",
        activation=read_activation(config, "hidden_act", "silu"),
        attn_scale=head_dim**-0.5,
        tie_embeddings=config.flag("tie_word_embeddings", False),
        attn_bias=bias,
        attn_out_bias=bias,
        qk_norm="per_head" if config.flag("use_qk_norm", True) else None,
        output_gate=_read_gate(config),
    )


def rules(spec: DecoderSpec) -> list[Rule]:
    attention = hub_names.attention()
    if spec.output_gate is not None:
        queries = spec.group_size * spec.head_dim
        gates = queries if spec.output_gate == "elementwise" else spec.group_size
        both = ("layers.{i}.attn.q_proj", "layers.{i}.attn.gate_proj")
        q_proj = f"{hub_names.LAYER}.self_attn.q_proj"
        fused = Split(q_proj, both, spec.num_kv_heads, (queries, gates))
        attention = [fused, *attention[1:]]
    return hub_names.decoder(spec, attention=attention, mlp=hub_names.gated_mlp())


def _read_gate(config: ConfigReader) -> OutputGate | None:
    headwise = config.flag("headwise_attn_output_gate", False)
    elementwise = config.flag("elementwise_attn_output_gate", False)
    if headwise and elementwise:
        raise CheckpointError(
            f"{config.origin} sets both headwise_attn_output_gate and "
            "elementwise_attn_output_gate; a model has one of them",
            hint="correct the config, or fetch it again",
        )
    return "headwise" if headwise else "elementwise" if elementwise else None


FAMILY = Family("qwen3", ("qwen3",), ("model.", ""), read, rules)
