"""Rules made concrete: one piece for each parameter, with the names of what it is made of.

Must not know what a file holds; plan.py compares the pieces with it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from llmcli.checkpoint.rules import Ignore, Rename, Rule, Split, Stack, Tie, Unstack
from llmcli.spec.parameters import Shape

# A rule names modules; a parameter may also be named whole.
_SUFFIXES = (".weight", ".bias", "")


@dataclass(frozen=True, slots=True)
class Cut:
    """Columns [start, stop) of the stored rows viewed as [groups, width]."""

    groups: int
    width: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Piece:
    """One parameter and the stored names that make it, with what is done to them in order.

    `index` picks along the first axis, `transpose` turns, `cut` takes a part; several `sources`
    are stacked. `needed` is the shape that each source must have.
    """

    target: str
    sources: tuple[str, ...]
    needed: Shape
    index: int | None = None
    transpose: bool = False
    cut: Cut | None = None


def first_module(rules: Sequence[Rule]) -> str:
    """The stored path that tells under which prefix a file keeps its decoder."""
    return next(rule.src for rule in rules if isinstance(rule, Rename))


def pieces(
    rules: Sequence[Rule],
    expected: Mapping[str, Shape],
    *,
    prefix: str,
    num_layers: int,
    num_experts: int,
) -> Iterator[Piece]:
    """A piece for every expected parameter that some rule makes."""
    for rule in rules:
        if isinstance(rule, Ignore | Tie):
            continue
        for concrete in _concrete(rule, prefix, num_layers, num_experts):
            yield from _pieces(concrete, expected, num_experts)


def ignored(
    rules: Sequence[Rule], stored: Collection[str], *, prefix: str, num_layers: int
) -> set[str]:
    """Those of the stored names that compute nothing."""
    names = {
        _fill(rule.name, prefix=prefix, i=layer)
        for rule in rules
        if isinstance(rule, Ignore)
        and (rule.witness is None or _fill(rule.witness, prefix=prefix) in stored)
        for layer in _layers(rule.name, num_layers)
    }
    below = tuple(name.removesuffix("*") for name in names if name.endswith(".*"))
    return {name for name in stored if name in names or name.startswith(below)}


def ties(rules: Sequence[Rule], *, prefix: str) -> list[Tie]:
    """The stored copies of tied parameters."""
    return [
        Tie(rule.src.replace("{p}", prefix), rule.dst) for rule in rules if isinstance(rule, Tie)
    ]


def _concrete(
    rule: Rename | Split | Unstack | Stack, prefix: str, num_layers: int, num_experts: int
) -> Iterator[Rename | Split | Unstack | Stack]:
    """The rule for each layer and, where its source names experts, for each expert."""
    for layer in _layers(rule.src, num_layers):
        experts = range(num_experts) if "{e}" in rule.src else (None,)
        for expert in experts:
            src = _fill(rule.src, prefix=prefix, i=layer, e=expert)
            match rule:
                case Rename(dst=dst):
                    yield Rename(src, _fill(dst, i=layer, e=expert), rule.transpose)
                case Stack(dst=dst):
                    yield Stack(src, _fill(dst, i=layer), rule.count)
                case Split(to=to):
                    parts = tuple(_fill(dst, i=layer, e=expert) for dst in to)
                    yield Split(src, parts, rule.groups, rule.sizes, rule.transpose)
                case Unstack(to=to):
                    parts = tuple(_fill(dst, i=layer) for dst in to)
                    yield Unstack(src, rule.suffix, parts, rule.groups, rule.sizes, rule.transpose)


def _layers(path: str, num_layers: int) -> Sequence[int | None]:
    return range(num_layers) if "{i}" in path else (None,)


def _fill(path: str, *, prefix: str = "", i: int | None = None, e: int | None = None) -> str:
    path = path.replace("{p}", prefix)
    if i is not None:
        path = path.replace("{i}", str(i))
    return path if e is None else path.replace("{e}", str(e))


def _pieces(
    rule: Rename | Split | Unstack | Stack, expected: Mapping[str, Shape], num_experts: int
) -> Iterator[Piece]:
    match rule:
        case Rename(src=src, dst=dst):
            for suffix in _SUFFIXES:
                if (shape := expected.get(dst + suffix)) is not None:
                    turned = rule.transpose and len(shape) == 2
                    needed = shape[::-1] if turned else shape
                    yield Piece(dst + suffix, (src + suffix,), needed, transpose=turned)
        case Stack(src=src, dst=dst, count=count):
            if (shape := expected.get(f"{dst}.weight")) is not None:
                sources = tuple(f"{src.replace('{h}', str(h))}.weight" for h in range(count))
                yield Piece(f"{dst}.weight", sources, shape[1:])
        case Split(src=src, to=to):
            for suffix in _SUFFIXES:
                targets = [part + suffix for part in to]
                yield from _parts(rule, expected, src + suffix, targets)
        case Unstack(src=src, suffix=suffix, to=to):
            for expert in range(num_experts):
                targets = [part.replace("{e}", str(expert)) + suffix for part in to]
                yield from _parts(rule, expected, src, targets, expert, num_experts)


def _parts(
    rule: Split | Unstack,
    expected: Mapping[str, Shape],
    source: str,
    targets: list[str],
    index: int | None = None,
    count: int = 0,
) -> Iterator[Piece]:
    """The pieces cut out of one stored tensor, or of one expert's share of it."""
    if not any(target in expected for target in targets):
        return
    shapes = [expected[target] for target in targets]
    for shape, size in zip(shapes, rule.sizes, strict=True):
        assert shape[0] == rule.groups * size, f"{rule.src}: part {shape} is not {size} a group"
    needed: Shape = (rule.groups * sum(rule.sizes), *shapes[0][1:])
    turned = rule.transpose and len(needed) == 2
    if turned:
        needed = needed[::-1]
    if index is not None:
        needed = (count, *needed)
    start = 0
    for target, size in zip(targets, rule.sizes, strict=True):
        whole = len(targets) == 1
        cut = None if whole else Cut(rule.groups, sum(rule.sizes), start, start + size)
        yield Piece(target, (source,), needed, index, turned, cut)
        start += size
