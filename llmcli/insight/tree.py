"""The tree view: modules as the decoder has them, and the stored names they are made of.

Must not know torch; repeats are told by comparing, never assumed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

from llmcli.checkpoint.plan import Assignment
from llmcli.insight.facts import Facts
from llmcli.insight.ranges import alike, written
from llmcli.plurals import counted
from llmcli.spec import DecoderSpec, parameter_shapes
from llmcli.spec.parameters import Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """Where a parameter comes from; `{i}` stands for the layer, `{e}` for the expert."""

    name: str
    dtype: str
    how: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Weight:
    """One parameter of a module, and its stored sources where a file is known."""

    name: str
    shape: Shape
    stored: tuple[Stored, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A module. `repeat` equal ones are shown once; `parameters` counts all of them.

    `path` is the module's name among our parameters, of the first where several are equal.
    """

    name: str
    path: str
    kind: str
    detail: str = ""
    repeat: int = 1
    parameters: int
    weights: tuple[Weight, ...] = ()
    children: tuple[Node, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """`stored` tells whether the stored names are known."""

    name: str
    family: str
    root: Node
    stored: bool
    warnings: tuple[str, ...]


def build_tree(facts: Facts, *, layer: int | None = None) -> Tree:
    """Equal layers grouped, or one `layer` (which must exist) by itself."""
    sources = {} if facts.plan is None else {one.target: one for one in facts.plan.assignments}
    shapes = parameter_shapes(facts.spec)
    grown = _Grower(facts.spec, shapes, sources)
    return Tree(
        name=facts.name,
        family=facts.family,
        root=grown.decoder(layer),
        stored=facts.plan is not None,
        warnings=facts.notices,
    )


def cut_to(node: Node, depth: int) -> Node:
    """The tree without what lies deeper than `depth` below its root."""
    kept = tuple(cut_to(child, depth - 1) for child in node.children) if depth > 0 else ()
    return replace(node, children=kept)


def search(node: Node, text: str) -> Node | None:
    """Only modules whose own or stored names hold `text`, and what leads to them.

    A module that matches is kept whole. None where nothing does.
    """
    wanted = text.casefold()
    names = [node.path, node.kind, *(one.name for w in node.weights for one in w.stored)]
    names += [f"{node.path}.{weight.name}" for weight in node.weights]
    if any(wanted in name.casefold() for name in names):
        return node
    kept = tuple(found for child in node.children if (found := search(child, text)))
    return replace(node, children=kept) if kept else None


class _Grower:
    """Modules grown out of the parameters' dotted names."""

    def __init__(
        self, spec: DecoderSpec, shapes: Mapping[str, Shape], sources: Mapping[str, Assignment]
    ) -> None:
        self._spec, self._shapes, self._sources = spec, shapes, sources
        self._nested: dict[str, dict[str, None]] = {}
        for name in shapes:
            parent = ""
            for step in name.split("."):
                self._nested.setdefault(parent, {})[step] = None
                parent = f"{parent}.{step}" if parent else step

    def decoder(self, only: int | None) -> Node:
        children = []
        for name in self._nested[""]:
            if name == "layers":
                children.append(self._layers(only))
            elif only is None:
                children.append(self._module(name, name))
        total = sum(child.parameters for child in children)
        return Node(name="", path="", kind="Decoder", parameters=total, children=tuple(children))

    def _layers(self, only: int | None) -> Node:
        layers, spec = [*self._nested["layers"]], self._spec
        if only is not None:
            node = self._module(str(only), f"layers.{only}")
            children: tuple[Node, ...] = (replace(node, kind="Block", detail=self._seen(only)),)
        else:
            keys = [(self._signature(f"layers.{name}"), spec.layers[int(name)]) for name in layers]
            groups = alike(keys)
            children = tuple(
                self._repeated(indices, "layers", "Block", self._seen(indices[0]))
                for indices in groups.values()
            )
        total = sum(child.parameters for child in children)
        return Node(
            name="layers", path="layers", kind="Layers", parameters=total, children=children
        )

    def _repeated(self, indices: tuple[int, ...], path: str, kind: str, detail: str) -> Node:
        first = self._module(written(indices), f"{path}.{indices[0]}")
        return replace(
            first,
            kind=kind,
            detail=detail,
            repeat=len(indices),
            parameters=first.parameters * len(indices),
        )

    def _module(self, name: str, path: str) -> Node:
        steps = self._nested[path]
        leaves = [step for step in steps if f"{path}.{step}" in self._shapes]
        weights = tuple(self._weight(path, step) for step in leaves)
        children = [self._module(step, f"{path}.{step}") for step in steps if step not in leaves]
        if path.endswith(".experts"):
            keys = [self._signature(f"{path}.{step}") for step in steps]
            children = [
                self._repeated(indices, path, "Expert", "") for indices in alike(keys).values()
            ]
        own = sum(prod(weight.shape) for weight in weights)
        kind, detail = self._kind(path, weights)
        return Node(
            name=name,
            path=path,
            kind=kind,
            detail=detail,
            parameters=own + sum(child.parameters for child in children),
            weights=weights,
            children=tuple(children),
        )

    def _signature(self, path: str) -> tuple[tuple[str, Shape, tuple[str, ...]], ...]:
        """What equal modules have in common: shapes, and the dtypes that they are stored in."""
        inside = self._nested.get(path, {})
        found: list[tuple[str, Shape, tuple[str, ...]]] = []
        for step in inside:
            whole = f"{path}.{step}"
            if whole in self._shapes:
                made = self._sources.get(whole)
                dtypes = () if made is None else tuple(one.dtype for one in made.sources)
                found.append((step, self._shapes[whole], dtypes))
            inner = self._signature(whole)
            found += [(f"{step}.{name}", shape, dtypes) for name, shape, dtypes in inner]
        return tuple(found)

    def _weight(self, path: str, step: str) -> Weight:
        whole = f"{path}.{step}"
        made = self._sources.get(whole)
        stored = () if made is None else tuple(_stored(made))
        return Weight(name=step, shape=self._shapes[whole], stored=stored)

    def _seen(self, index: int) -> str:
        layer = self._spec.layers[index]
        if layer.mixer == "gated_delta":
            words = "a state in place of keys"
        elif layer.window is not None:
            words = f"slides over {layer.window:,}"
        else:
            words = "sees all"
        if layer.mixer == "attention" and any(one.rope for one in self._spec.layers):
            rope = layer.rope
            words += ", no positions" if rope is None else f", rotary theta {rope.theta:,.10g}"
        return words + ", sparse" * layer.sparse

    def _kind(self, path: str, weights: tuple[Weight, ...]) -> tuple[str, str]:
        spec, name = self._spec, path.rpartition(".")[2]
        shape = weights[0].shape if weights else ()
        if name == "attn":
            return self._attention(path)
        if name in ("mlp", "shared") or name.isdecimal():
            return "MLP", spec.activation.replace("_", " ")
        if name == "experts":
            return "Experts", "" if spec.experts is None else f"{spec.experts.top_k} a token"
        if name.endswith("norm"):
            return {"rms": "RMSNorm", "layer": "LayerNorm"}[spec.norm], ""
        if name in ("embed_tokens", "embed_positions"):
            tied = name == "embed_tokens" and spec.tie_embeddings
            return "Embedding", "also the head" if tied else ""
        if name == "conv":
            return "Convolution", "depthwise"
        return "Linear", f"{shape[1]:,} -> {shape[0]:,}" if len(shape) == 2 else ""

    def _attention(self, path: str) -> tuple[str, str]:
        spec = self._spec
        if f"{path}.a_log" in self._shapes:
            return "GatedDelta", ""
        if spec.latent is not None:
            return "LatentAttention", counted(spec.num_heads, "head")
        shared = "" if spec.group_size == 1 else f", {spec.num_kv_heads} of keys and values"
        return (
            "Attention",
            f"{counted(spec.num_heads, 'head')} of {spec.head_dim}{shared}",
        )


def _stored(made: Assignment) -> list[Stored]:
    """The sources with our own indices replaced, so that equal layers read alike."""
    piece = made.piece
    how = []
    if piece.index is not None:
        how.append("one of a stack")
    if piece.transpose:
        how.append("transposed")
    if piece.cut is not None:
        part = f"{piece.cut.start}-{piece.cut.stop - 1} of {piece.cut.width}"
        each = f" in each of {piece.cut.groups} groups" if piece.cut.groups > 1 else ""
        how.append(f"rows {part}{each}")
    if made.packed:
        how.append(f"packed, {len(made.sources)} parts")
    elif len(made.sources) > 1:
        how.append(f"{len(made.sources)} stacked")
    words = ", ".join(how)
    layer = re.match(r"layers\.(\d+)\.", made.target)
    expert = re.search(r"\.experts\.(\d+)\.", made.target)
    name = made.target if made.packed else made.source.name
    if layer:
        name = _generic(name, layer[1], "{i}")
    if expert:
        name = _generic(name, expert[1], "{e}", after="expert")
    return [Stored(name=name, dtype=made.source.dtype, how=words)]


def _generic(name: str, index: str, mark: str, *, after: str = "") -> str:
    """The name with the first step equal to `index`, behind `after`, replaced by `mark`."""
    head, found, tail = name.partition(after) if after else ("", "", name)
    steps = tail.split(".")
    if index in steps:
        steps[steps.index(index)] = mark
    return head + found + ".".join(steps)
