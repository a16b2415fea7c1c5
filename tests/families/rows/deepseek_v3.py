"""DeepSeek-V3: latent attention, and experts that a sigmoid and a bias choose in groups."""

from __future__ import annotations

from functools import partial
from typing import Any

from transformers import DeepseekV3Config

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
        "num_key_value_heads": 4,
        "q_lora_rank": 24,
        "kv_lora_rank": 16,
        "qk_nope_head_dim": 12,
        "qk_rope_head_dim": 8,
        "v_head_dim": 16,
        "n_routed_experts": 8,
        "num_experts_per_tok": 3,
        "n_group": 4,
        "topk_group": 2,
        "max_position_embeddings": 1024,
        "rms_norm_eps": 0.03,
        "rope_parameters": {"rope_type": "default", "rope_theta": 700.0, **(scaling or {})},
    }
    return DeepseekV3Config(**settings | changes)


_YARN = {
    "rope_type": "yarn",
    "rope_theta": 300.0,
    "factor": 4.0,
    "beta_fast": 8,
    "beta_slow": 1,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "original_max_position_embeddings": 256,
}

ROWS = [
    Row(name="deepseek_v3-plain", config=partial(_config, scaling=_YARN)),
    # With every expert chosen, rounding cannot choose another one.
    Row(
        name="deepseek_v3-every-expert",
        config=partial(_config, num_experts_per_tok=8, topk_group=4),
        bfloat16=True,
    ),
    Row(
        name="deepseek_v3-halves",
        config=partial(_config, rope_interleave=False, q_lora_rank=None, attention_bias=True),
    ),
    Row(
        name="deepseek_v3-one-group",
        config=partial(
            _config,
            n_group=1,
            topk_group=1,
            norm_topk_prob=False,
            routed_scaling_factor=1.0,
            n_shared_experts=2,
            first_k_dense_replace=0,
        ),
    ),
]
