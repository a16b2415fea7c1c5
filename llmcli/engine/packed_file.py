"""Safetensors files of llmcli's quantised form, written tensor by tensor as these are made.

The header says where each lies before any is there, so that they may come in any order. Must not
know how tensors are packed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import BinaryIO

import torch
from torch import Tensor

from llmcli.checkpoint.header import DTYPE_BITS, encode_header
from llmcli.spec.parameters import Shape

# What is stored of one parameter: dtype and shape of each tensor by its name in the file.
Parts = Mapping[str, tuple[str, Shape]]


@dataclass(frozen=True, slots=True)
class Shard:
    """One file: its name, its header, and where each tensor begins."""

    name: str
    header: bytes
    places: Mapping[str, int]
    nbytes: int


def plan_shards(parameters: Iterable[Parts], *, most_bytes: int) -> list[Shard]:
    """Parameters kept whole and in order; a new file begins where one would exceed `most_bytes`."""
    groups: list[dict[str, tuple[str, Shape]]] = [{}]
    size = 0
    for parts in parameters:
        more = sum(_bytes(*part) for part in parts.values())
        if groups[-1] and size + more > most_bytes:
            groups.append({})
            size = 0
        groups[-1].update(parts)
        size += more
    if len(groups) == 1:
        return [_shard("model.safetensors", groups[0])]
    return [
        _shard(f"model-{number:05}-of-{len(groups):05}.safetensors", group)
        for number, group in enumerate(groups, start=1)
    ]


def index_of(shards: Iterable[Shard]) -> bytes:
    """model.safetensors.index.json for several files."""
    files = list(shards)
    content = {
        "metadata": {"total_size": sum(shard.nbytes for shard in files)},
        "weight_map": {name: shard.name for shard in files for name in shard.places},
    }
    return (json.dumps(content, indent=2) + "\n").encode()


def write_shards(
    folder: Path,
    shards: Iterable[Shard],
    tensors: Iterable[tuple[str, Tensor]],
    *,
    on_written: Callable[[int], None],
) -> None:
    """Every tensor that the shards have a place for must come, once. Raises OSError."""
    opened: dict[str, tuple[BinaryIO, int]] = {}
    files = []
    try:
        for shard in shards:
            file: BinaryIO = (folder / shard.name).open("xb")
            files.append(file)
            file.write(shard.header)
            opened.update((name, (file, place)) for name, place in shard.places.items())
        for name, tensor in tensors:
            file, place = opened.pop(name)
            file.seek(place)
            numbers = tensor.detach().contiguous().flatten()
            if numbers.numel():
                file.write(numbers.view(torch.uint8).numpy().data)
            on_written(tensor.nbytes)
        assert not opened, f"never written: {list(opened)[:3]}"
    finally:
        for file in files:
            file.close()


def _shard(name: str, parts: Parts) -> Shard:
    """Wide numbers come first, so that every tensor begins at a multiple of its own width."""
    order = sorted(parts, key=lambda one: -DTYPE_BITS[parts[one][0]])
    entries: dict[str, object] = {}
    at, places = 0, {}
    for one in order:
        dtype, shape = parts[one]
        end = at + _bytes(dtype, shape)
        entries[one] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, end]}
        places[one] = at
        at = end
    header = encode_header(entries)
    return Shard(name, header, {one: len(header) + place for one, place in places.items()}, at)


def _bytes(dtype: str, shape: Shape) -> int:
    return DTYPE_BITS[dtype] // 8 * prod(shape)
