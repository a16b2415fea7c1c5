"""What DeepSeek-V2 and V3 share: latent attention, its names, and experts beside dense layers.

Must not know any single family.
"""

from __future__ import annotations

import math
from typing import Any

from llmcli.checkpoint.config import ConfigReader
from llmcli.checkpoint.rules import Ignore, Rename, Rule
from llmcli.families import hub_names
from llmcli.spec import DecoderSpec, Latent, LayerSpec, Rope, YarnScaling

# Settings of training, of parallel runs, or that repeat others.
IGNORED = tuple(
    """
    attention_dropout aux_loss_alpha seq_aux ep_size pretraining_tp output_router_logits
    router_aux_loss_coef num_nextn_predict_layers num_mtp_layers head_dim qk_head_dim
    """.split()
)


def read_latent(config: ConfigReader) -> Latent:
    """The sizes of latent attention; a null `q_lora_rank` projects the queries directly."""
    direct = config.has("q_lora_rank") and config.raw("q_lora_rank") is None
    return Latent(
        kv_rank=config.integer("kv_lora_rank", 512),
        nope_dim=config.integer("qk_nope_head_dim", 128),
        rope_dim=config.integer("qk_rope_head_dim", 64),
        value_dim=config.integer("v_head_dim", 128),
        query_rank=None if direct else config.integer("q_lora_rank", 1536),
        bias=config.flag("attention_bias", False),
    )


def attention_scale(config: ConfigReader, latent: Latent, rope: Rope) -> float:
    """1 / sqrt of the head's width, times YaRN's temperature where `mscale_all_dim` asks for it.

    Cos and sin carry it too, but they turn only a part of each head (arXiv 2405.04434).
    """
    scale: float = (latent.nope_dim + latent.rope_dim) ** -0.5
    if not isinstance(rope.scaling, YarnScaling):
        return scale
    settings: Any = config.raw("rope_parameters") or config.raw("rope_scaling")
    weight = settings.get("mscale_all_dim") or 0.0
    temperature = 0.1 * weight * math.log(rope.scaling.factor) + 1.0
    return scale * temperature**2


def read_layers(
    config: ConfigReader, rope: Rope, *, count: int, dense: int
) -> tuple[LayerSpec, ...]:
    """The first `first_k_dense_replace` layers (by default `dense`) have a plain MLP."""
    first = config.integer("first_k_dense_replace", dense)
    config.expect("moe_layer_freq", 1)
    return tuple(LayerSpec(rope=rope, sparse=index >= first) for index in range(count))


def rules(spec: DecoderSpec) -> list[Rule]:
    names = {
        "q_proj": "q_proj",
        "q_a_proj": "q_a_proj",
        "q_a_layernorm": "q_a_norm",
        "q_b_proj": "q_b_proj",
        "kv_a_proj_with_mqa": "kv_a_proj",
        "kv_a_layernorm": "kv_a_norm",
        "kv_b_proj": "kv_b_proj",
        "o_proj": "o_proj",
    }
    further = f"{{p}}layers.{spec.num_layers}"
    attention = [
        Rename(f"{hub_names.LAYER}.self_attn.{theirs}", f"layers.{{i}}.attn.{ours}")
        for theirs, ours in names.items()
    ]
    mlp = [
        *hub_names.gated_mlp(),
        *hub_names.experts("mlp", gate="gate_proj", up="up_proj", down="down_proj"),
        *hub_names.shared_mlp("shared_experts"),
        Rename(
            f"{hub_names.LAYER}.mlp.gate.e_score_correction_bias",
            "layers.{i}.mlp.correction_bias",
        ),
        # One layer more predicts the token after the next; generation does not use it.
        Ignore(f"{further}.*", witness=f"{further}.eh_proj.weight"),
    ]
    return hub_names.decoder(spec, attention=attention, mlp=mlp)
