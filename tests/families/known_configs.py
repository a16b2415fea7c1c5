"""Config.json files as the hub has them, written from the public facts of real models.

Each with its number of parameters, as published or as transformers counts them.
"""

from __future__ import annotations

from typing import Any

Config = dict[str, Any]


def _hub(kind: str, architecture: str, **keys: Any) -> Config:
    return {
        "architectures": [architecture],
        "model_type": kind,
        "initializer_range": 0.02,
        "torch_dtype": "bfloat16",
        "transformers_version": "4.45.0",
        "use_cache": True,
        **keys,
    }


def _llama(**keys: Any) -> Config:
    common = {
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": 128000,
        "eos_token_id": 128001,
        "hidden_act": "silu",
        "mlp_bias": False,
        "pretraining_tp": 1,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": False,
        "vocab_size": 128256,
        "max_position_embeddings": 131072,
        "rope_theta": 500000.0,
    }
    return _hub("llama", "LlamaForCausalLM", **common | keys)


def _llama3_scaling(factor: float) -> Config:
    return {
        "factor": factor,
        "high_freq_factor": 4.0,
        "low_freq_factor": 1.0,
        "original_max_position_embeddings": 8192,
        "rope_type": "llama3",
    }


def _phi3_mini(**keys: Any) -> Config:
    common = {
        "_name_or_path": "Phi-3-mini",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "auto_map": {"AutoConfig": "configuration_phi3.Phi3Config"},
        "bos_token_id": 1,
        "embd_pdrop": 0.0,
        "eos_token_id": 32000,
        "hidden_act": "silu",
        "hidden_size": 3072,
        "intermediate_size": 8192,
        "num_attention_heads": 32,
        "num_hidden_layers": 32,
        "num_key_value_heads": 32,
        "original_max_position_embeddings": 4096,
        "pad_token_id": 32000,
        "resid_pdrop": 0.0,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "vocab_size": 32064,
    }
    return _hub("phi3", "Phi3ForCausalLM", **common | keys)


def _mistral_7b(**keys: Any) -> Config:
    common = {
        "attention_dropout": 0.0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "hidden_act": "silu",
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "max_position_embeddings": 32768,
        "num_attention_heads": 32,
        "num_hidden_layers": 32,
        "num_key_value_heads": 8,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": False,
    }
    return _hub("mistral", "MistralForCausalLM", **common | keys)


def _qwen(kind: str, architecture: str, **keys: Any) -> Config:
    common = {
        "attention_dropout": 0.0,
        "bos_token_id": 151643,
        "eos_token_id": 151645,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000.0,
        "use_sliding_window": False,
    }
    return _hub(kind, architecture, **common | keys)


def _gemma(kind: str, architecture: str, **keys: Any) -> Config:
    common = {
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": 2,
        "cache_implementation": "hybrid",
        "eos_token_id": 1,
        "head_dim": 256,
        "hidden_activation": "gelu_pytorch_tanh",
        "pad_token_id": 0,
        "query_pre_attn_scalar": 256,
        "rms_norm_eps": 1e-6,
    }
    return _hub(kind, architecture, **common | keys)


def _gemma3(**keys: Any) -> Config:
    common = {
        "attn_logit_softcapping": None,
        "final_logit_softcapping": None,
        "max_position_embeddings": 32768,
        "num_key_value_heads": 1,
        "num_attention_heads": 4,
        "rope_local_base_freq": 10000,
        "rope_scaling": None,
        "rope_theta": 1000000,
        "sliding_window": 512,
        "sliding_window_pattern": 6,
        "vocab_size": 262144,
    }
    return _gemma("gemma3_text", "Gemma3ForCausalLM", **common | keys)


PHI_3_MINI_4K = _phi3_mini(max_position_embeddings=4096, rope_scaling=None, sliding_window=2047)
PHI_3_MINI_128K = _phi3_mini(
    max_position_embeddings=131072,
    # The divisors of the real file differ from one another; their number is what is tested.
    rope_scaling={"long_factor": [2.5] * 48, "short_factor": [1.05] * 48, "type": "longrope"},
    sliding_window=262144,
)
PHI_4_MINI = _phi3_mini(
    full_attn_mod=1,
    interpolate_factor=1,
    lm_head_bias=False,
    mlp_bias=False,
    max_position_embeddings=131072,
    num_attention_heads=24,
    num_key_value_heads=8,
    partial_rotary_factor=0.75,
    rope_scaling={"long_factor": [2.5] * 48, "short_factor": [1.0] * 48, "type": "longrope"},
    sliding_window=262144,
    tie_word_embeddings=True,
    vocab_size=200064,
)
LLAMA_2_7B = _llama(
    bos_token_id=1,
    eos_token_id=2,
    hidden_size=4096,
    intermediate_size=11008,
    max_position_embeddings=4096,
    num_attention_heads=32,
    num_hidden_layers=32,
    num_key_value_heads=32,
    rope_scaling=None,
    rope_theta=...,
    vocab_size=32000,
)
LLAMA_3_1_8B = _llama(
    hidden_size=4096,
    intermediate_size=14336,
    num_attention_heads=32,
    num_hidden_layers=32,
    num_key_value_heads=8,
    rope_scaling=_llama3_scaling(8.0),
)
LLAMA_3_2_1B = _llama(
    head_dim=64,
    hidden_size=2048,
    intermediate_size=8192,
    num_attention_heads=32,
    num_hidden_layers=16,
    num_key_value_heads=8,
    rope_scaling=_llama3_scaling(32.0),
    tie_word_embeddings=True,
)
MISTRAL_7B_V01 = _mistral_7b(rope_theta=10000.0, sliding_window=4096, vocab_size=32000)
MISTRAL_7B_V03 = _mistral_7b(rope_theta=1000000.0, sliding_window=None, vocab_size=32768)
MIXTRAL_8X7B = _mistral_7b(
    architectures=["MixtralForCausalLM"],
    model_type="mixtral",
    num_experts_per_tok=2,
    num_local_experts=8,
    output_router_logits=False,
    rope_theta=1000000.0,
    router_aux_loss_coef=0.02,
    sliding_window=None,
    vocab_size=32000,
)
QWEN_2_5_05B = _qwen(
    "qwen2",
    "Qwen2ForCausalLM",
    hidden_size=896,
    intermediate_size=4864,
    max_position_embeddings=32768,
    max_window_layers=24,
    num_attention_heads=14,
    num_hidden_layers=24,
    num_key_value_heads=2,
    sliding_window=32768,
    tie_word_embeddings=True,
    use_mrope=False,
    vocab_size=151936,
)
QWEN_2_5_7B = _qwen(
    "qwen2",
    "Qwen2ForCausalLM",
    hidden_size=3584,
    intermediate_size=18944,
    max_position_embeddings=131072,
    max_window_layers=28,
    num_attention_heads=28,
    num_hidden_layers=28,
    num_key_value_heads=4,
    sliding_window=131072,
    tie_word_embeddings=False,
    use_mrope=False,
    vocab_size=152064,
)
_QWEN3: Config = {
    "attention_bias": False,
    "head_dim": 128,
    "max_position_embeddings": 40960,
    "rope_scaling": None,
    "sliding_window": None,
    "vocab_size": 151936,
}
QWEN_3_06B = _qwen(
    "qwen3",
    "Qwen3ForCausalLM",
    **_QWEN3,
    hidden_size=1024,
    intermediate_size=3072,
    max_window_layers=28,
    num_attention_heads=16,
    num_hidden_layers=28,
    num_key_value_heads=8,
    tie_word_embeddings=True,
)
QWEN_3_8B = _qwen(
    "qwen3",
    "Qwen3ForCausalLM",
    **_QWEN3,
    hidden_size=4096,
    intermediate_size=12288,
    max_window_layers=36,
    num_attention_heads=32,
    num_hidden_layers=36,
    num_key_value_heads=8,
    tie_word_embeddings=False,
)
QWEN_3_30B_A3B = _qwen(
    "qwen3_moe",
    "Qwen3MoeForCausalLM",
    **_QWEN3,
    decoder_sparse_step=1,
    hidden_size=2048,
    intermediate_size=6144,
    max_window_layers=48,
    mlp_only_layers=[],
    moe_intermediate_size=768,
    norm_topk_prob=True,
    num_attention_heads=32,
    num_experts=128,
    num_experts_per_tok=8,
    num_hidden_layers=48,
    num_key_value_heads=4,
    output_router_logits=False,
    router_aux_loss_coef=0.001,
    tie_word_embeddings=False,
)
GEMMA_2B = _hub(
    "gemma",
    "GemmaForCausalLM",
    attention_bias=False,
    attention_dropout=0.0,
    bos_token_id=2,
    eos_token_id=1,
    head_dim=256,
    hidden_act="gelu",
    hidden_activation=None,
    hidden_size=2048,
    intermediate_size=16384,
    max_position_embeddings=8192,
    num_attention_heads=8,
    num_hidden_layers=18,
    num_key_value_heads=1,
    pad_token_id=0,
    rms_norm_eps=1e-6,
    rope_scaling=None,
    rope_theta=10000.0,
    vocab_size=256000,
)
GEMMA_2_2B = _gemma(
    "gemma2",
    "Gemma2ForCausalLM",
    attn_logit_softcapping=50.0,
    final_logit_softcapping=30.0,
    hidden_act="gelu_pytorch_tanh",
    hidden_size=2304,
    intermediate_size=9216,
    max_position_embeddings=8192,
    num_attention_heads=8,
    num_hidden_layers=26,
    num_key_value_heads=4,
    rope_theta=10000.0,
    sliding_window=4096,
    vocab_size=256000,
)
GEMMA_3_270M = _gemma3(
    _sliding_window_pattern=6,
    hidden_size=640,
    intermediate_size=2048,
    layer_types=[
        "full_attention" if index % 6 == 5 else "sliding_attention" for index in range(18)
    ],
    num_hidden_layers=18,
    sliding_window_pattern=...,
    use_bidirectional_attention=False,
)
GEMMA_3_1B = _gemma3(hidden_size=1152, intermediate_size=6912, num_hidden_layers=26)
STARCODER2_3B = _hub(
    "starcoder2",
    "Starcoder2ForCausalLM",
    attention_dropout=0.1,
    residual_dropout=0.1,
    embedding_dropout=0.1,
    bos_token_id=0,
    eos_token_id=0,
    hidden_act="gelu_pytorch_tanh",
    hidden_size=3072,
    intermediate_size=12288,
    max_position_embeddings=16384,
    mlp_type="default",
    norm_epsilon=1e-5,
    norm_type="layer_norm",
    num_attention_heads=24,
    num_hidden_layers=30,
    num_key_value_heads=2,
    rope_theta=999999.4420358813,
    sliding_window=4096,
    use_bias=True,
    vocab_size=49152,
)
SMOLLM3_3B = _hub(
    "smollm3",
    "SmolLM3ForCausalLM",
    attention_bias=False,
    attention_dropout=0.0,
    bos_token_id=None,
    eos_token_id=128012,
    hidden_act="silu",
    hidden_size=2048,
    intermediate_size=11008,
    layer_types=["full_attention"] * 36,
    max_position_embeddings=65536,
    max_window_layers=28,
    mlp_bias=False,
    no_rope_layer_interval=4,
    no_rope_layers=[1, 1, 1, 0] * 9,
    num_attention_heads=16,
    num_hidden_layers=36,
    num_key_value_heads=4,
    pad_token_id=128004,
    pretraining_tp=2,
    rms_norm_eps=1e-6,
    rope_scaling=None,
    rope_theta=5000000.0,
    sliding_window=None,
    use_sliding_window=False,
    vocab_size=128256,
)
OLMO_2_7B = _hub(
    "olmo2",
    "Olmo2ForCausalLM",
    attention_bias=False,
    attention_dropout=0.0,
    eos_token_id=100257,
    hidden_act="silu",
    hidden_size=4096,
    intermediate_size=11008,
    max_position_embeddings=4096,
    num_attention_heads=32,
    num_hidden_layers=32,
    num_key_value_heads=32,
    pad_token_id=100277,
    rms_norm_eps=1e-6,
    rope_scaling=None,
    rope_theta=500000,
    tie_word_embeddings=False,
    vocab_size=100352,
)
STABLELM_2_1_6B = _hub(
    "stablelm",
    "StableLmForCausalLM",
    bos_token_id=100257,
    eos_token_id=100257,
    hidden_act="silu",
    hidden_size=2048,
    intermediate_size=5632,
    layer_norm_eps=1e-5,
    max_position_embeddings=4096,
    num_attention_heads=32,
    num_hidden_layers=24,
    num_key_value_heads=32,
    partial_rotary_factor=0.25,
    rope_theta=10000,
    tie_word_embeddings=False,
    use_qkv_bias=True,
    vocab_size=100352,
)
PHI_2 = _hub(
    "phi",
    "PhiForCausalLM",
    attention_dropout=0.0,
    bos_token_id=50256,
    embd_pdrop=0.0,
    eos_token_id=50256,
    hidden_act="gelu_new",
    hidden_size=2560,
    intermediate_size=10240,
    layer_norm_eps=1e-5,
    max_position_embeddings=2048,
    num_attention_heads=32,
    num_hidden_layers=32,
    num_key_value_heads=32,
    partial_rotary_factor=0.4,
    qk_layernorm=False,
    resid_pdrop=0.1,
    rope_scaling=None,
    rope_theta=10000.0,
    tie_word_embeddings=False,
    vocab_size=51200,
)
GPT_2 = {
    "activation_function": "gelu_new",
    "architectures": ["GPT2LMHeadModel"],
    "attn_pdrop": 0.1,
    "bos_token_id": 50256,
    "embd_pdrop": 0.1,
    "eos_token_id": 50256,
    "initializer_range": 0.02,
    "layer_norm_epsilon": 1e-5,
    "model_type": "gpt2",
    "n_ctx": 1024,
    "n_embd": 768,
    "n_head": 12,
    "n_layer": 12,
    "n_positions": 1024,
    "resid_pdrop": 0.1,
    "summary_activation": None,
    "summary_first_dropout": 0.1,
    "summary_proj_to_labels": True,
    "summary_type": "cls_index",
    "summary_use_proj": True,
    "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}},
    "vocab_size": 50257,
}

KNOWN: dict[str, tuple[Config, int]] = {
    name: ({key: value for key, value in config.items() if value is not ...}, count)
    for name, config, count in [
        ("Phi-3-mini-4k", PHI_3_MINI_4K, 3_821_079_552),
        ("Phi-3-mini-128k", PHI_3_MINI_128K, 3_821_079_552),
        ("Phi-4-mini", PHI_4_MINI, 3_836_021_760),
        ("Llama-2-7B", LLAMA_2_7B, 6_738_415_616),
        ("Llama-3.1-8B", LLAMA_3_1_8B, 8_030_261_248),
        ("Llama-3.2-1B", LLAMA_3_2_1B, 1_235_814_400),
        ("Mistral-7B-v0.1", MISTRAL_7B_V01, 7_241_732_096),
        ("Mistral-7B-v0.3", MISTRAL_7B_V03, 7_248_023_552),
        ("Mixtral-8x7B", MIXTRAL_8X7B, 46_702_792_704),
        ("Qwen2.5-0.5B", QWEN_2_5_05B, 494_032_768),
        ("Qwen2.5-7B", QWEN_2_5_7B, 7_615_616_512),
        ("Qwen3-0.6B", QWEN_3_06B, 596_049_920),
        ("Qwen3-8B", QWEN_3_8B, 8_190_735_360),
        ("Qwen3-30B-A3B", QWEN_3_30B_A3B, 30_532_122_624),
        ("Gemma-2B", GEMMA_2B, 2_506_172_416),
        ("Gemma-2-2B", GEMMA_2_2B, 2_614_341_888),
        ("Gemma-3-270M", GEMMA_3_270M, 268_098_176),
        ("Gemma-3-1B", GEMMA_3_1B, 999_885_952),
        ("StarCoder2-3B", STARCODER2_3B, 3_030_371_328),
        ("SmolLM3-3B", SMOLLM3_3B, 3_075_098_624),
        ("OLMo-2-7B", OLMO_2_7B, 7_298_617_344),
        ("StableLM-2-1.6B", STABLELM_2_1_6B, 1_644_515_328),
        ("Phi-2", PHI_2, 2_779_683_840),
        ("GPT-2", GPT_2, 124_439_808),
    ]
}
