"""DeepSeek-V2: latent attention, with and without a latent for queries; experts in groups."""

from __future__ import annotations

from functools import partial
from typing import Any

from transformers import DeepseekV2Config

from tests.oracle import Row


def _config(*, scaling: dict[str, Any] | None = None, **changes: Any) -> Any:
    settings: dict[str, Any] = {
        "vocab_size": 320,
        "hidden_size": 48,
        "intermediate_size": 64,
        "moe_intermediate_size": 24,
        "num_hidden_layers": 2,
        "first_k_dense_replace": 1,
        "num_attention_heads": 4,
        "q_lora_rank": 24,
        "kv_lora_rank": 16,
        "qk_nope_head_dim": 12,
        "qk_rope_head_dim": 8,
        "v_head_dim": 16,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "max_position_embeddings": 1024,
        "rms_norm_eps": 0.03,
        "rope_parameters": {"rope_type": "default", "rope_theta": 700.0, **(scaling or {})},
    }
    return DeepseekV2Config(**settings | changes)


_YARN = {
    "rope_type": "yarn",
    "rope_theta": 300.0,
    "factor": 4.0,
    "beta_fast": 8,
    "beta_slow": 1,
    "mscale": 0.9,
    "mscale_all_dim": 0.7,
    "original_max_position_embeddings": 256,
}

ROWS = [
    Row(name="deepseek_v2-plain", config=partial(_config, scaling=_YARN)),
    # With every expert chosen, rounding cannot choose another one.
    Row(
        name="deepseek_v2-every-expert",
        config=partial(_config, num_experts_per_tok=4),
        bfloat16=True,
    ),
    Row(
        name="deepseek_v2-lite",
        config=partial(_config, q_lora_rank=None, attention_bias=True, n_shared_experts=1),
    ),
    Row(
        name="deepseek_v2-groups",
        config=partial(
            _config,
            topk_method="group_limited_greedy",
            n_routed_experts=8,
            n_group=4,
            topk_group=2,
            num_experts_per_tok=3,
            routed_scaling_factor=2.5,
            mlp_bias=True,
        ),
    ),
]
