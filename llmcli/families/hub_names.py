"""Hugging Face's names of the modules that most decoders have, as rules.

A rule whose targets a spec does not have does nothing, so optional parts are always listed.
Must not know any single family.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from llmcli.checkpoint.rules import Ignore, Rename, Rule, Tie
from llmcli.spec import DecoderSpec

LAYER = "{p}layers.{i}"

# Our norms by the names that Llama gave them, and by those of the blocks with four.
TWO_NORMS = {"attn_norm": "input_layernorm", "mlp_norm": "post_attention_layernorm"}
FOUR_NORMS = {
    "attn_norm": "input_layernorm",
    "post_attn_norm": "post_attention_layernorm",
    "mlp_norm": "pre_feedforward_layernorm",
    "post_mlp_norm": "post_feedforward_layernorm",
}


def attention(*, out: str = "o_proj", qk_norms: bool = True) -> list[Rule]:
    """Separate projections, and (unless they have other names) norms of queries and keys."""
    ours = "layers.{i}.attn"
    names = ("q_proj", "k_proj", "v_proj", *(("q_norm", "k_norm") if qk_norms else ()))
    return [
        *(Rename(f"{LAYER}.self_attn.{name}", f"{ours}.{name}") for name in names),
        Rename(f"{LAYER}.self_attn.{out}", f"{ours}.o_proj"),
    ]


def gated_mlp() -> list[Rule]:
    return plain_mlp(gate="gate_proj", up="up_proj", down="down_proj")


def plain_mlp(*, up: str, down: str, gate: str | None = None) -> list[Rule]:
    """The MLP's matrices under the given names."""
    names = {"gate_proj": gate, "up_proj": up, "down_proj": down}
    return [
        Rename(f"{LAYER}.mlp.{theirs}", f"layers.{{i}}.mlp.{ours}")
        for ours, theirs in names.items()
        if theirs is not None
    ]


def experts(module: str, *, gate: str, up: str, down: str) -> list[Rule]:
    """A router and one MLP an expert, inside `module`."""
    names = {"gate_proj": gate, "up_proj": up, "down_proj": down}
    return [
        Rename(f"{LAYER}.{module}.gate", "layers.{i}.mlp.router"),
        *(
            Rename(
                f"{LAYER}.{module}.experts.{{e}}.{theirs}", f"layers.{{i}}.mlp.experts.{{e}}.{ours}"
            )
            for ours, theirs in names.items()
        ),
    ]


def shared_mlp(module: str) -> list[Rule]:
    """The gated MLP beside the experts that every token goes through."""
    return [
        Rename(f"{LAYER}.mlp.{module}.{name}", f"layers.{{i}}.mlp.shared.{name}")
        for name in ("gate_proj", "up_proj", "down_proj")
    ]


def decoder(
    spec: DecoderSpec,
    *,
    attention: Sequence[Rule],
    mlp: Sequence[Rule],
    norms: Mapping[str, str] = TWO_NORMS,
    final_norm: str = "norm",
) -> list[Rule]:
    """All of a decoder's rules: what is given, and the embedding, the norms and the head."""
    return [
        Rename("{p}embed_tokens", "embed_tokens"),
        *(Rename(f"{LAYER}.{theirs}", f"layers.{{i}}.{ours}") for ours, theirs in norms.items()),
        *attention,
        *mlp,
        Rename(f"{{p}}{final_norm}", "norm"),
        Tie("lm_head.weight", "embed_tokens.weight")
        if spec.tie_embeddings
        else Rename("lm_head", "lm_head"),
        Ignore(f"{LAYER}.self_attn.rotary_emb.inv_freq"),
    ]
