"""The table of families and their facts, as Markdown; docs/families.md is what it renders.

A family's facts are those of its default config, so a variant's are in its description.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Final

from llmcli.checkpoint.config import ConfigReader
from llmcli.families import FAMILIES
from llmcli.families.family import Family
from llmcli.spec import Alibi, DecoderSpec, Learned, Sinusoidal

# What a config must state where its model type has no default.
_LEAST: Final[Mapping[str, Any]] = {
    "vocab_size": 32000,
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 24,
    "num_attention_heads": 32,
    "num_experts_per_tok": 2,
}
_COLUMNS = ("model_type", "attention", "positions", "norm", "residual", "MLP", "special", "family")

_HEAD = """# Model families

Every `model_type` that llmcli reads, with the facts of its default config. This table is
generated from the registry (`llmcli/families/table.py`); a test keeps it true.
What a checkpoint's own config says can differ: `inspect-layers` shows it.

"""


def render() -> str:
    """The whole page."""
    rows = [_COLUMNS, ("---",) * len(_COLUMNS), *map(_row, FAMILIES)]
    return _HEAD + "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _row(family: Family) -> tuple[str, ...]:
    spec = family.read(ConfigReader(_LEAST))
    documented = sys.modules[family.read.__module__].__doc__ or ""
    return (
        ", ".join(f"`{kind}`" for kind in family.model_types),
        _attention(spec),
        _positions(spec),
        {"rms": "RMSNorm", "layer": "LayerNorm"}[spec.norm],
        spec.residual.replace("_", " "),
        f"{spec.mlp}, {spec.activation.replace('_', ' ')}",
        ", ".join(_specials(spec)) or "-",
        documented.partition("\n")[0].rstrip("."),
    )


def _attention(spec: DecoderSpec) -> str:
    if spec.latent is not None:
        kind = "latent"
    elif spec.num_kv_heads == 1:
        kind = "multi-query"
    else:
        kind = "multi-head" if spec.group_size == 1 else "grouped"
    if any(layer.mixer == "gated_delta" for layer in spec.layers):
        kind += " and gated delta"
    if not spec.windowed:
        return kind
    everywhere = all(layer.window for layer in spec.layers)
    return f"{kind}, {'window' if everywhere else 'some layers windowed'}"


def _positions(spec: DecoderSpec) -> str:
    match spec.positions:
        case Learned():
            return "learned"
        case Sinusoidal():
            return "sinusoidal"
        case Alibi():
            return "ALiBi"
    rope = next(layer.rope for layer in spec.layers if layer.rope)
    turned = spec.latent.rope_dim if spec.latent else spec.head_dim
    words = ["rotary"]
    if rope.dim < turned:
        words.append("on a part")
    if rope.interleaved:
        words.append("interleaved")
    if any(layer.rope is None and layer.mixer == "attention" for layer in spec.layers):
        words.append("in some layers")
    return " ".join(words)


def _specials(spec: DecoderSpec) -> list[str]:
    facts = {
        "experts": spec.experts is not None,
        "shared expert": spec.experts is not None and spec.experts.shared_size is not None,
        "qkv bias": spec.attn_bias,
        "qk norm": spec.qk_norm is not None,
        "output gate": spec.output_gate is not None,
        "sinks": spec.sinks,
        "soft caps": spec.attn_softcap is not None or spec.logit_softcap is not None,
        "embedding norm": spec.embed_norm,
        "scaled embedding": spec.embed_scale != 1,
        "scaled residuals": spec.residual_scale != 1,
        "scaled logits": spec.logit_scale != 1,
        "head bias": spec.head_bias,
        "tied head": spec.tie_embeddings,
    }
    return [name for name, true in facts.items() if true]
