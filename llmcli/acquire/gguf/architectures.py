"""One row a GGUF architecture: how its config and its tensors read in Hugging Face's words.

A new architecture is a new row: a config builder, the tensor names, the symbolic shapes, and
which rows the GGUF converter had permuted. Must not know tokenizers, dtypes or writing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from llmcli.acquire.gguf.llama import llama_config
from llmcli.acquire.gguf.reader import GgufFile

Permuted = Literal["query", "key"]


@dataclass(frozen=True, slots=True)
class TensorRule:
    """`source` in the GGUF file is `target` in the checkpoint; `{i}` is a layer's number.

    `shape` names sizes in the config builder's table; `permuted` asks for the rotary rows
    of each head to be put back in halves.
    """

    source: str
    target: str
    shape: tuple[str, ...]
    permuted: Permuted | None = None
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Shaped:
    """A built config.json, the sizes that tensor shapes refer to, and the keys it read."""

    config: dict[str, Any]
    sizes: Mapping[str, int]
    read_keys: frozenset[str]


@dataclass(frozen=True, slots=True)
class Architecture:
    """All that is known of one GGUF architecture."""

    name: str
    config: Callable[[GgufFile], Shaped]
    rules: tuple[TensorRule, ...]
    # Tensors that the config builder reads, or that hold nothing a checkpoint keeps.
    consumed: frozenset[str]


def _llama(file: GgufFile) -> Shaped:
    config, sizes, read = llama_config(file)
    return Shaped(config, sizes, read)


_LAYER = "model.layers.{i}."

_LLAMA = Architecture(
    name="llama",
    config=_llama,
    rules=(
        TensorRule("token_embd.weight", "model.embed_tokens.weight", ("vocab", "hidden")),
        TensorRule("output_norm.weight", "model.norm.weight", ("hidden",)),
        TensorRule("output.weight", "lm_head.weight", ("vocab", "hidden"), optional=True),
        TensorRule("blk.{i}.attn_norm.weight", _LAYER + "input_layernorm.weight", ("hidden",)),
        TensorRule(
            "blk.{i}.attn_q.weight",
            _LAYER + "self_attn.q_proj.weight",
            ("query", "hidden"),
            permuted="query",
        ),
        TensorRule(
            "blk.{i}.attn_k.weight",
            _LAYER + "self_attn.k_proj.weight",
            ("key", "hidden"),
            permuted="key",
        ),
        TensorRule("blk.{i}.attn_v.weight", _LAYER + "self_attn.v_proj.weight", ("key", "hidden")),
        TensorRule(
            "blk.{i}.attn_output.weight", _LAYER + "self_attn.o_proj.weight", ("hidden", "query")
        ),
        TensorRule(
            "blk.{i}.attn_q.bias",
            _LAYER + "self_attn.q_proj.bias",
            ("query",),
            permuted="query",
            optional=True,
        ),
        TensorRule(
            "blk.{i}.attn_k.bias",
            _LAYER + "self_attn.k_proj.bias",
            ("key",),
            permuted="key",
            optional=True,
        ),
        TensorRule(
            "blk.{i}.attn_v.bias", _LAYER + "self_attn.v_proj.bias", ("key",), optional=True
        ),
        TensorRule(
            "blk.{i}.attn_output.bias",
            _LAYER + "self_attn.o_proj.bias",
            ("hidden",),
            optional=True,
        ),
        TensorRule(
            "blk.{i}.ffn_norm.weight", _LAYER + "post_attention_layernorm.weight", ("hidden",)
        ),
        TensorRule("blk.{i}.ffn_gate.weight", _LAYER + "mlp.gate_proj.weight", ("inner", "hidden")),
        TensorRule("blk.{i}.ffn_up.weight", _LAYER + "mlp.up_proj.weight", ("inner", "hidden")),
        TensorRule("blk.{i}.ffn_down.weight", _LAYER + "mlp.down_proj.weight", ("hidden", "inner")),
        TensorRule(
            "blk.{i}.ffn_gate.bias", _LAYER + "mlp.gate_proj.bias", ("inner",), optional=True
        ),
        TensorRule("blk.{i}.ffn_up.bias", _LAYER + "mlp.up_proj.bias", ("inner",), optional=True),
        TensorRule(
            "blk.{i}.ffn_down.bias", _LAYER + "mlp.down_proj.bias", ("hidden",), optional=True
        ),
    ),
    consumed=frozenset({"rope_freqs.weight"}),
)

ARCHITECTURES: Mapping[str, Architecture] = {row.name: row for row in (_LLAMA,)}
