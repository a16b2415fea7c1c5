"""The phi3 architecture (Phi-3, Phi-3.5, Phi-4, Phi-4-mini): its config.json and its tensors.

Queries, keys and values are one tensor, and gate and up another, in both forms alike. LongRoPE
is two tensors of factors and the factor on the attention that its rule gives.
"""

from __future__ import annotations

import math
from typing import Any

from llmcli.acquire.gguf.keys import Keys
from llmcli.acquire.gguf.reader import GgufFile
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
from llmcli.checkpoint.escape import printable

_LONG, _SHORT = "rope_factors_long.weight", "rope_factors_short.weight"
# Files from before windows were stored: the published models that there were, by layers,
# hidden size, key-value heads and context.
_PUBLISHED_WINDOWS = {
    (32, 3072, 32, 4096): 2047,
    (32, 3072, 32, 131072): 262144,
    (40, 5120, 10, 4096): 2047,
    (40, 5120, 10, 131072): 131072,
}


def _config(file: GgufFile) -> Shaped:
    keys = Keys(file, "phi3")
    sizes = read_sizes(file, keys, own_head_dim=False, partial=True)
    original = keys.size("rope.scaling.original_context_length", sizes.context)
    config = {
        "architectures": ["Phi3ForCausalLM"],
        "model_type": "phi3",
        "vocab_size": sizes.vocab,
        "hidden_size": sizes.hidden,
        "intermediate_size": sizes.inner,
        "num_hidden_layers": sizes.layers,
        "num_attention_heads": sizes.heads,
        "num_key_value_heads": sizes.kv_heads,
        "hidden_act": "silu",
        "max_position_embeddings": sizes.context,
        "original_max_position_embeddings": original,
        "rms_norm_eps": keys.number("attention.layer_norm_rms_epsilon"),
        "rope_theta": keys.number("rope.freq_base", 10000.0),
        "rope_scaling": _rope_scaling(file, keys, sizes, original),
        "partial_rotary_factor": sizes.rotary / sizes.head_dim,
        "sliding_window": _window(file, keys, sizes),
        "tie_word_embeddings": tied(file),
    }
    keys.refuse_unmapped(context=sizes.context)
    return Shaped(config, sizes.table(), frozenset(keys.read))


def _window(file: GgufFile, keys: Keys, sizes: Sizes) -> int | None:
    if keys.get("attention.sliding_window") is not None:
        return keys.window()
    known = (sizes.layers, sizes.hidden, sizes.kv_heads, sizes.context)
    if known not in _PUBLISHED_WINDOWS:
        raise file.fault(
            f"holds no {keys.full('attention.sliding_window')}",
            "it was written before windows were stored; get a newer file of this model",
        )
    return _PUBLISHED_WINDOWS[known]


def _rope_scaling(file: GgufFile, keys: Keys, sizes: Sizes, original: int) -> dict[str, Any] | None:
    kind = keys.text("rope.scaling.type") or "none"
    keys.get("rope.scaling.finetuned")
    there = [name for name in (_LONG, _SHORT) if name in file.tensors]
    if len(there) == 1:
        raise file.fault(f"holds {there[0]} without its other half")
    if kind not in ("none", "longrope") or (kind == "longrope" and not there):
        raise file.fault(
            f"uses the rotary scaling '{printable(kind, 40)}'"
            + ("" if there else " and holds no factors"),
            "only no scaling and LongRoPE with its factors can be imported",
        )
    if not there:
        _refuse_factor(file, keys)
        return None
    if original < 2:
        raise file.fault(f"began its rotary scaling at a context of {original}")
    return {
        "rope_type": "longrope",
        "long_factor": _factors(file, _LONG, sizes),
        "short_factor": _factors(file, _SHORT, sizes),
    } | _attention_factor(keys, sizes, original)


def _attention_factor(keys: Keys, sizes: Sizes, original: int) -> dict[str, float]:
    """Nothing where LongRoPE's own rule gives the stored factor, else the factor."""
    stored = keys.exact_number("rope.scaling.attn_factor")
    scale = sizes.context / original
    ruled = math.sqrt(1 + math.log(scale) / math.log(original)) if scale > 1 else 1.0
    if math.isclose(stored, ruled, rel_tol=1e-6):
        return {}
    return {"attention_factor": stored}


def _refuse_factor(file: GgufFile, keys: Keys) -> None:
    factor = keys.number("rope.scaling.attn_factor", 1.0)
    if factor != 1.0:
        raise file.fault(
            f"{keys.full('rope.scaling.attn_factor')} is {factor:g} without factors of LongRoPE",
            "config.json of this architecture has no word for it; it cannot be imported",
        )


def _factors(file: GgufFile, name: str, sizes: Sizes) -> list[float]:
    from llmcli.acquire.gguf.tensors import read_rows

    factors = [float(value) for value in read_rows(file, file.tensors[name]).reshape(-1)]
    if len(factors) != sizes.rotary // 2:
        raise file.fault(f"{name} holds {len(factors)} factors for {sizes.rotary // 2} frequencies")
    if not all(math.isfinite(factor) and factor > 0 for factor in factors):
        raise file.fault(f"{name} holds a factor that is not a number above 0")
    return factors


PHI3 = Architecture(
    name="phi3",
    config=_config,
    rules=(
        TensorRule("token_embd.weight", "model.embed_tokens.weight", ("vocab", "hidden")),
        TensorRule("output_norm.weight", "model.norm.weight", ("hidden",)),
        TensorRule("output.weight", "lm_head.weight", ("vocab", "hidden"), optional=True),
        TensorRule("blk.{i}.attn_norm.weight", LAYER + "input_layernorm.weight", ("hidden",)),
        *matrix("attn_qkv", LAYER + "self_attn.qkv_proj", ("qkv", "hidden")),
        *matrix("attn_output", LAYER + "self_attn.o_proj", ("hidden", "query")),
        TensorRule(
            "blk.{i}.ffn_norm.weight", LAYER + "post_attention_layernorm.weight", ("hidden",)
        ),
        *matrix("ffn_up", LAYER + "mlp.gate_up_proj", ("gate_up", "hidden")),
        *matrix("ffn_down", LAYER + "mlp.down_proj", ("hidden", "inner")),
    ),
    consumed=frozenset({_LONG, _SHORT}),
    # Phi-3's own tokenizer strips the white space after its chat tokens.
    sentences=Sentences(
        eats_space=True, eats_no_space=frozenset({"<unk>", "<s>", "<|endoftext|>"})
    ),
)
