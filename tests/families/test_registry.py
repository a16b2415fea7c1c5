"""find_family: what is not supported is refused by name, with the reason where it is known."""

from __future__ import annotations

import pytest
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
)

from llmcli.errors import CheckpointError, UnsupportedError
from llmcli.families import FAMILIES, find_family, read_spec, supported
from llmcli.families.not_decoders import ENCODER_DECODERS, ENCODERS


@pytest.mark.parametrize("kind", ["bert", "roberta", "distilbert", "modernbert", "deberta-v2"])
def test_encoders_are_refused_with_the_reason(kind: str) -> None:
    with pytest.raises(UnsupportedError, match=f"{kind} .*an encoder, not a causal decoder"):
        find_family({"model_type": kind})


@pytest.mark.parametrize("kind", ["t5", "bart", "mt5", "pegasus", "whisper", "m2m_100"])
def test_encoder_decoders_are_refused_with_the_reason(kind: str) -> None:
    with pytest.raises(UnsupportedError, match=f"{kind} .*an encoder-decoder, not a causal decod"):
        find_family({"model_type": kind})


def test_the_lists_of_other_kinds_are_right() -> None:
    """No supported type is among them, and transformers agrees about those it knows."""
    assert not (ENCODERS | ENCODER_DECODERS) & set(supported())
    assert not ENCODERS & ENCODER_DECODERS
    # transformers gives many of them a decoder as well, and whisper's hears speech.
    decoders_alone = (
        set(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
        - set(MODEL_FOR_MASKED_LM_MAPPING_NAMES)
        - set(MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES)
    )
    listed = (ENCODERS | ENCODER_DECODERS) & decoders_alone - {"whisper"}
    assert not listed, f"transformers takes these for decoders: {sorted(listed)}"


def test_what_is_unknown_lists_what_is_supported() -> None:
    with pytest.raises(UnsupportedError, match=r"mamba is not supported; supported: .*llama"):
        find_family({"model_type": "mamba"})


def test_a_type_is_answered_for_once_and_in_order() -> None:
    types = [kind for family in FAMILIES for kind in family.model_types]
    assert len(types) == len(set(types))
    names = [family.name for family in FAMILIES]
    assert names == sorted(names, key=lambda name: name.replace("-", "_"))


@pytest.mark.parametrize(
    ("settings", "method"),
    [
        ({"quant_method": "mxfp4", "modules_to_not_convert": []}, "mxfp4"),
        ({"quant_method": "fp8", "fmt": "e4m3"}, "fp8"),
    ],
)
def test_quantised_weights_are_refused_by_name(settings: dict[str, object], method: str) -> None:
    config = {"model_type": "gpt_oss", "quantization_config": settings}
    with pytest.raises(UnsupportedError, match=method):
        read_spec(config)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"model_type": "opt", "layer_norm_elementwise_affine": False}, "elementwise_affine"),
        ({"model_type": "bloom", "apply_residual_connection_post_layernorm": True}, "residual"),
        (
            {
                "model_type": "falcon",
                "new_decoder_architecture": True,
                "num_kv_heads": 71,
                "parallel_attn": False,
            },
            "parallel_attn",
        ),
        ({"model_type": "falcon", "num_ln_in_parallel_attn": 2}, "num_ln_in_parallel_attn"),
        (
            {
                "model_type": "gemma",
                "hidden_size": 48,
                "num_attention_heads": 4,
                "use_bidirectional_attention": True,
            },
            "use_bidirectional_attention",
        ),
        ({"model_type": "gptj", "rotary": False}, "rotary"),
        ({"model_type": "gpt_bigcode", "add_cross_attention": True}, "add_cross_attention"),
        ({"model_type": "openai-gpt", "afn": "tanh"}, "afn"),
        ({"model_type": "gpt_oss", "swiglu_limit": 6.0}, "swiglu_limit"),
        ({"model_type": "deepseek_v2", "topk_method": "noaux_tc"}, "topk_method"),
        (
            {"model_type": "deepseek_v2", "norm_topk_prob": True, "num_experts_per_tok": 6},
            "norm_topk_prob",
        ),
        ({"model_type": "deepseek_v3", "scoring_func": "softmax"}, "scoring_func"),
        ({"model_type": "qwen3_next", "hidden_act": "gelu"}, "hidden_act"),
    ],
    ids=lambda value: value.get("model_type") if isinstance(value, dict) else value,
)
def test_what_a_family_does_not_do_is_refused_by_name(
    config: dict[str, object], words: str
) -> None:
    with pytest.raises(UnsupportedError, match=words):
        read_spec(config)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"model_type": "gpt_neo", "attention_types": [[["global"], 3]]}, "global"),
        ({"model_type": "gpt_neo", "attention_layers": ["wide"] * 24}, "wide"),
        ({"model_type": "gpt_neo", "attention_layers": 3}, "3"),
        ({"model_type": "qwen3_next", "layer_types": ["full_attention"]}, "48 layers"),
        ({"model_type": "qwen3_next", "layer_types": ["mamba"] * 48}, "mamba"),
        (
            {"model_type": "deepseek_v3", "num_key_value_heads": 8},
            "8 key-value heads",
        ),
        ({"model_type": "deepseek_v3", "n_group": 7}, "7 equal groups"),
        ({"model_type": "deepseek_v3", "n_group": 0}, "0 equal groups"),
        ({"model_type": "deepseek_v3", "topk_group": 9}, "9 of 8 groups"),
        ({"model_type": "deepseek_v3", "n_group": 64, "topk_group": 1}, "1 of 64 groups of 4"),
        ({"model_type": "deepseek_v3", "kv_lora_rank": 0}, "kv_rank is 0"),
        ({"model_type": "deepseek_v3", "qk_rope_head_dim": 7}, "rotary dimension 7"),
        ({"model_type": "qwen3_next", "linear_num_key_heads": 0}, "num_key_heads is 0"),
        ({"model_type": "qwen3_next", "linear_num_key_heads": 3}, "multiple of 3 key heads"),
        ({"model_type": "gpt_oss", "num_experts_per_tok": 129}, "129 of 128 experts"),
        ({"model_type": "gptj", "rotary_dim": 300}, "rotary dimension 300"),
        ({"model_type": "gpt_neo", "window_size": 0}, "a window of 0 keys"),
    ],
)
def test_contradictory_configs_are_refused(config: dict[str, object], words: str) -> None:
    with pytest.raises(CheckpointError, match=words):
        read_spec(config)
