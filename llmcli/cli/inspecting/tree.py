"""The tree view as text: like a printed module, with shapes and stored names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from llmcli.checkpoint.escape import printable
from llmcli.cli.columns import cells_wide, folded
from llmcli.cli.inspecting.asked import Asked
from llmcli.cli.inspecting.drawing import Drawing
from llmcli.cli.inspecting.subject import Subject
from llmcli.errors import UsageError
from llmcli.insight.bounds import check_between, check_index
from llmcli.insight.tree import Node, Tree, Weight, build_tree, cut_to, search

_MOST_DEPTH = 100


def _compute(subject: Subject, asked: Asked) -> Tree:
    check_index("--layer", asked.layer, subject.facts.spec.num_layers, "layers")
    check_between("--depth", asked.depth, 0, _MOST_DEPTH)
    tree = build_tree(subject.facts, layer=asked.layer)
    root: Node | None = tree.root
    if asked.search is not None:
        root = search(tree.root, asked.search)
        if root is None:
            raise UsageError(
                f"no module or stored tensor has {printable(repr(asked.search), 60)} in its name",
                hint="leave --search out to see them all",
            )
    assert root is not None
    return replace(tree, root=root if asked.depth is None else cut_to(root, asked.depth))


def _lines(tree: Tree, width: int | None) -> list[str]:
    rows = [(line, source) for line, source in _node(tree.root, "")]
    beside = 2 + max((cells_wide(line) for line, source in rows if source), default=0)
    needed = max((beside + cells_wide(source) for _, source in rows), default=0)
    lines = []
    for line, source in rows:
        if not source:
            lines.append(line)
        elif width is None or needed <= width:
            lines.append(f"{line}{' ' * (beside - cells_wide(line))}{source}")
        else:
            indent = len(line) - len(line.lstrip()) + 4
            lines += [line, *folded(source, width, first=" " * indent, rest=" " * (indent + 3))]
    for warning in tree.warnings:
        lines += ["", *folded(warning, width, first="warning: ")]
    return lines


def _node(node: Node, indent: str) -> Iterator[tuple[str, str]]:
    """(our line, where it is stored) of a module and all below it."""
    name = f"({node.name}): " if node.name else ""
    times = f"{node.repeat} x " if node.repeat > 1 else ""
    words = f"{times}{node.kind}" + (f", {node.detail}" if node.detail else "")
    alone = node.weights[0] if len(node.weights) == 1 and not node.children else None
    if alone is not None:
        bare = "" if alone.name == "weight" else f" {alone.name}"
        yield f"{indent}{name}{words}{bare} {_shape(alone)}", _source(alone)
        return
    each = f"{node.parameters // node.repeat:,}{' each' * (node.repeat > 1)}"
    yield f"{indent}{name}{words}  {each}", ""
    for weight in node.weights:
        yield f"{indent}  {weight.name} {_shape(weight)}", _source(weight)
    for child in node.children:
        yield from _node(child, indent + "  ")


def _shape(weight: Weight) -> str:
    return f"[{', '.join(map(str, weight.shape))}]"


def _source(weight: Weight) -> str:
    """`<- name dtype (how)`; the name is a file's, so it is escaped."""
    return ", ".join(
        f"<- {printable(one.name)} {one.dtype}{f' ({one.how})' if one.how else ''}"
        for one in weight.stored
    )


DRAWING = Drawing(compute=_compute, lines=_lines)
