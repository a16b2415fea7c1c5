"""Every tensor of a GGUF file matched with a rule, both sides proved. Must not read any data."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from llmcli.acquire.gguf.reader import GgufFile, StoredTensor
from llmcli.acquire.gguf.rules import Architecture, Form, Shaped, TensorRule
from llmcli.checkpoint.escape import printable, shortlist

_LAYER = "{i}"


@dataclass(frozen=True, slots=True)
class Move:
    """One stored tensor, its name in the checkpoint, and what is to be undone."""

    source: StoredTensor
    target: str
    form: Form


def plan_moves(file: GgufFile, architecture: Architecture, shaped: Shaped) -> list[Move]:
    """What goes where, in the checkpoint's order; refuses anything left over or missing."""
    moves = list(_moves(file, architecture, shaped))
    used = {move.source.name for move in moves} | architecture.consumed
    left = [name for name in file.tensors if name not in used]
    if left:
        raise file.fault(
            f"holds tensors that the {architecture.name} architecture has no place for: "
            f"{shortlist(left)}",
            "the file is a variant that cannot be imported",
        )
    return moves


def _moves(file: GgufFile, architecture: Architecture, shaped: Shaped) -> Iterator[Move]:
    layers = shaped.sizes["layers"]
    wanted = [rule for rule in architecture.rules if not rule.optional or _used(file, rule)]
    missing: list[str] = []
    for source, target, rule in _names(wanted, layers):
        tensor = file.tensors.get(source)
        if tensor is None:
            missing.append(source)
            continue
        shape = tuple(shaped.sizes[size] for size in rule.shape)
        if tensor.shape != shape:
            raise file.fault(
                f"tensor {printable(source)} has the shape {list(tensor.shape)}, "
                f"its metadata asks for {list(shape)}"
            )
        yield Move(tensor, target, rule.form)
    if missing:
        raise file.fault(f"lacks tensors: {shortlist(missing)}")


def _used(file: GgufFile, rule: TensorRule) -> bool:
    # Optional is for the whole model: a bias in one layer asks for it in all.
    pattern = re.compile(re.escape(rule.source).replace(re.escape(_LAYER), r"\d+"))
    return any(pattern.fullmatch(name) for name in file.tensors)


def _names(rules: Sequence[TensorRule], layers: int) -> Iterator[tuple[str, str, TensorRule]]:
    for rule in rules:
        if _LAYER not in rule.source:
            yield rule.source, rule.target, rule
    for layer in range(layers):
        for rule in rules:
            if _LAYER in rule.source:
                number = str(layer)
                yield (
                    rule.source.replace(_LAYER, number),
                    rule.target.replace(_LAYER, number),
                    rule,
                )
