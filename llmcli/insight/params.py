"""The params view: where a decoder's numbers lie, from its spec alone. Must not know torch."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import Final

from llmcli.insight.facts import Facts
from llmcli.insight.ranges import alike, written
from llmcli.spec import DecoderSpec, parameter_shapes

EMBEDDING, POSITIONS, ATTENTION, MLP = "embedding", "positions", "attention", "MLP"
NORMS, UNEMBEDDING, BIASES = "norms", "unembedding", "biases"

# By the module that holds the parameter; what is not named here is "other" of its group.
_ATTENTION: Final = {
    "q_proj": "query",
    "q_a_proj": "query, down to its latent",
    "q_b_proj": "query, up from its latent",
    "k_proj": "key",
    "v_proj": "value",
    "kv_a_proj": "key and value, down to their latent",
    "kv_b_proj": "key and value, up from their latent",
    "o_proj": "output",
    "out_proj": "output",
    "gate_proj": "output gate",
    "in_q_proj": "query",
    "in_k_proj": "key",
    "in_v_proj": "value",
    "in_z_proj": "output gate",
    "in_b_proj": "rate of learning",
    "in_a_proj": "rate of decay",
    "dt_bias": "rate of decay",
    "a_log": "rate of decay",
    "conv": "short convolution",
    "sinks": "sinks",
}
_MLP: Final = {
    "gate_proj": "gate",
    "up_proj": "up",
    "down_proj": "down",
    "router": "router",
    "correction_bias": "router",
    "shared_gate": "shared gate",
}
# The order of the rows; the weight matrices that texts usually add up come first.
_GROUPS: Final = (EMBEDDING, ATTENTION, MLP, UNEMBEDDING, POSITIONS, BIASES, NORMS)
_MATRICES: Final = (EMBEDDING, ATTENTION, MLP, UNEMBEDDING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One kind of parameter. `by_kind` counts it in one layer of each of Params.kinds."""

    group: str
    part: str
    count: int
    by_kind: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerKind:
    """Layers with the same parameters: their indices written as ranges, and one layer's total."""

    layers: str
    number: int
    parameters: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """All parts, the totals of groups, and of all. A tied head is in the embedding alone.

    `matrices` adds up embedding, attention, MLP and unembedding. `active` counts what one token
    goes through where there are experts, else everything.
    """

    name: str
    parts: tuple[Part, ...]
    groups: dict[str, int]
    matrices: int
    total: int
    active: int
    tied_head: bool
    kinds: tuple[LayerKind, ...]
    note: str | None


def count_parts(facts: Facts) -> Params:
    """From the facts alone."""
    spec = facts.spec
    outside: Counter[tuple[str, str]] = Counter()
    layers: list[Counter[tuple[str, str]]] = [Counter() for _ in spec.layers]
    for name, shape in parameter_shapes(spec).items():
        layer = _LAYER.match(name)
        counts = outside if layer is None else layers[int(layer[1])]
        counts[classify(name)] += prod(shape)
    total = outside + sum(layers, Counter[tuple[str, str]]())
    kinds = alike(tuple(sorted(counts.items())) for counts in layers)
    order = list(dict.fromkeys(key for counts in (outside, *layers) for key in counts))
    parts = tuple(
        Part(
            group=group,
            part=part,
            count=total[group, part],
            by_kind=tuple(dict(kind).get((group, part), 0) for kind in kinds),
        )
        for wanted in _GROUPS
        for group, part in order
        if group == wanted
    )
    groups = {
        group: sum(part.count for part in parts if part.group == group)
        for group in dict.fromkeys(part.group for part in parts)
    }
    everything = sum(groups.values())
    return Params(
        name=facts.name,
        parts=parts,
        groups=groups,
        matrices=sum(groups.get(group, 0) for group in _MATRICES),
        total=everything,
        active=everything - idle_parameters(spec),
        tied_head=spec.tie_embeddings,
        kinds=tuple(
            LayerKind(
                layers=written(indices),
                number=len(indices),
                parameters=sum(count for _, count in kind),
            )
            for kind, indices in kinds.items()
        ),
        note=facts.note,
    )


def idle_parameters(spec: DecoderSpec) -> int:
    """Parameters of the experts that one token does not go through."""
    if spec.experts is None:
        return 0
    experts = sum(
        prod(shape) for name, shape in parameter_shapes(spec).items() if ".mlp.experts." in name
    )
    return experts * (spec.experts.count - spec.experts.top_k) // spec.experts.count


_LAYER: Final = re.compile(r"layers\.(\d+)\.")


def classify(name: str) -> tuple[str, str]:
    """Group and part of one of our parameters' names."""
    path = _LAYER.sub("", name).split(".")
    inside, module = path[0], _module(path)
    if module.endswith("norm"):
        return NORMS, "norms"
    if inside == "embed_positions":
        return POSITIONS, "learned positions"
    if inside in ("embed_tokens", "embed_proj"):
        return EMBEDDING, "embedding" if inside == "embed_tokens" else "projection"
    if path[-1] == "bias":
        return BIASES, "biases"
    if inside in ("lm_head", "head_proj"):
        return UNEMBEDDING, "unembedding" if inside == "lm_head" else "projection"
    if inside == "attn":
        return ATTENTION, _ATTENTION.get(module, "other")
    return MLP, _experts(path) + _MLP.get(module, "other")


def _module(path: list[str]) -> str:
    return path[-2] if path[-1] in ("weight", "bias") else path[-1]


def _experts(path: Iterable[str]) -> str:
    kinds = {"experts": "experts, ", "shared": "shared expert, "}
    return next((kinds[step] for step in path if step in kinds), "")
