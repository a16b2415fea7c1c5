"""The gemma3 architecture (text only): its config.json and its tensors.

The file has every norm's weight with the 1 added that the checkpoint's model adds itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from llmcli.acquire.gguf.keys import Keys
from llmcli.acquire.gguf.reader import GgufFile
from llmcli.acquire.gguf.rope import rope_scaling
from llmcli.acquire.gguf.rules import (
    LAYER,
    Architecture,
    Sentences,
    Shaped,
    TensorRule,
    matrix,
    tied,
)
from llmcli.acquire.gguf.sizes import Sizes, read_sizes

# What holds where the file is silent: every sixth layer is global, and the rotary base of others.
_PATTERN, _LOCAL_BASE = 6, 10000.0
# The file never says by what queries are scaled. All published models scale by the head size,
# but the 27B one, which has this many layers, by the hidden size over its heads.
_LAYERS_OF_27B = 62


def _config(file: GgufFile) -> Shaped:
    keys = Keys(file, "gemma3")
    sizes = read_sizes(file, keys)
    theta = keys.number("rope.freq_base", 1000000.0)
    pattern, layer_types = _layer_types(file, keys, sizes)
    config = {
        "architectures": ["Gemma3ForCausalLM"],
        "model_type": "gemma3_text",
        "vocab_size": sizes.vocab,
        "hidden_size": sizes.hidden,
        "intermediate_size": sizes.inner,
        "num_hidden_layers": sizes.layers,
        "num_attention_heads": sizes.heads,
        "num_key_value_heads": sizes.kv_heads,
        "head_dim": sizes.head_dim,
        "query_pre_attn_scalar": _query_scalar(file, sizes),
        "hidden_activation": "gelu_pytorch_tanh",
        "attention_bias": False,
        "max_position_embeddings": sizes.context,
        "rms_norm_eps": keys.number("attention.layer_norm_rms_epsilon"),
        "sliding_window": _window(file, keys),
        **pattern,
        "layer_types": layer_types,
        "rope_theta": theta,
        "rope_local_base_freq": keys.number("rope.freq_base_swa", _LOCAL_BASE),
        "rope_scaling": rope_scaling(file, keys, ("linear",), head_dim=sizes.head_dim, theta=theta),
        "attn_logit_softcapping": _softcap(file, keys, "attn_logit_softcapping"),
        "final_logit_softcapping": _softcap(file, keys, "final_logit_softcapping"),
        "tie_word_embeddings": tied(file),
    }
    keys.refuse_unmapped(context=sizes.context)
    return Shaped(config, sizes.table(), frozenset(keys.read))


def _window(file: GgufFile, keys: Keys) -> int:
    window = keys.window()
    if window is None:
        raise file.fault(
            f"{keys.full('attention.sliding_window')} is 0",
            "a gemma3 model without a window cannot be imported",
        )
    return window


def _layer_types(file: GgufFile, keys: Keys, sizes: Sizes) -> tuple[Mapping[str, int], list[str]]:
    """Which layers see the window only: by a period, or one truth value a layer."""
    name = "attention.sliding_window_pattern"
    stored: Any = keys.get(name)
    period = _PATTERN if stored is None else stored
    if isinstance(period, int) and not isinstance(period, bool) and period > 0:
        local = [(i + 1) % period != 0 for i in range(sizes.layers)]
        return {"sliding_window_pattern": period}, _words(local)
    each = file.items(keys.full(name), bool) or []
    if len(each) != sizes.layers:
        raise file.fault(f"{keys.full(name)} names {len(each)} layers of {sizes.layers}")
    return {}, _words(each)


def _words(local: list[bool]) -> list[str]:
    return ["sliding_attention" if here else "full_attention" for here in local]


def _query_scalar(file: GgufFile, sizes: Sizes) -> int:
    if sizes.layers != _LAYERS_OF_27B:
        return sizes.head_dim
    if sizes.hidden % sizes.heads:
        raise file.fault(f"has {sizes.heads} heads that do not divide the hidden {sizes.hidden}")
    return sizes.hidden // sizes.heads


def _softcap(file: GgufFile, keys: Keys, name: str) -> float | None:
    cap = keys.number(name, 0.0)
    if cap < 0 or not math.isfinite(cap):
        raise file.fault(f"{keys.full(name)} is {cap:g}, below 0")
    return cap or None


def _norm(source: str, target: str, size: str = "hidden") -> TensorRule:
    return TensorRule(f"{source}.weight", f"{target}.weight", (size,), "one_added")


GEMMA3 = Architecture(
    name="gemma3",
    config=_config,
    rules=(
        TensorRule("token_embd.weight", "model.embed_tokens.weight", ("vocab", "hidden")),
        _norm("output_norm", "model.norm"),
        TensorRule("output.weight", "lm_head.weight", ("vocab", "hidden"), optional=True),
        _norm("blk.{i}.attn_norm", LAYER + "input_layernorm"),
        *matrix("attn_q", LAYER + "self_attn.q_proj", ("query", "hidden")),
        *matrix("attn_k", LAYER + "self_attn.k_proj", ("key", "hidden")),
        *matrix("attn_v", LAYER + "self_attn.v_proj", ("key", "hidden")),
        *matrix("attn_output", LAYER + "self_attn.o_proj", ("hidden", "query")),
        _norm("blk.{i}.attn_q_norm", LAYER + "self_attn.q_norm", "head_dim"),
        _norm("blk.{i}.attn_k_norm", LAYER + "self_attn.k_norm", "head_dim"),
        _norm("blk.{i}.post_attention_norm", LAYER + "post_attention_layernorm"),
        _norm("blk.{i}.ffn_norm", LAYER + "pre_feedforward_layernorm"),
        *matrix("ffn_gate", LAYER + "mlp.gate_proj", ("inner", "hidden")),
        *matrix("ffn_up", LAYER + "mlp.up_proj", ("inner", "hidden")),
        *matrix("ffn_down", LAYER + "mlp.down_proj", ("hidden", "inner")),
        _norm("blk.{i}.post_ffw_norm", LAYER + "post_feedforward_layernorm"),
    ),
    sentences=Sentences(merge_order="places", spaces=True),
)
