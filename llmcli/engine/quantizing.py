"""`llmcli quantize`: a checkpoint folder read, packed matrix by matrix, and written anew.

The new folder appears whole or not at all. Must not know terminals.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from llmcli import __version__
from llmcli.acquire.catalog import catalog
from llmcli.acquire.disk import disk_faults, require_room
from llmcli.acquire.origin import ORIGIN, Origin, read_origin, write_origin
from llmcli.acquire.progress import Progress
from llmcli.acquire.resolve import Resolved
from llmcli.checkpoint.directory import ModelDir
from llmcli.checkpoint.escape import printable
from llmcli.checkpoint.packed_form import KEY, PackedForm
from llmcli.checkpoint.tensors import TensorFiles
from llmcli.engine.new_folder import check_new, new_folder
from llmcli.engine.packed_file import Parts, Shard, index_of, plan_shards, write_shards
from llmcli.engine.packing import packed
from llmcli.engine.proved import Proved, prove_folder
from llmcli.errors import UsageError
from llmcli.spec import (
    INT4_GROUP,
    PackingKind,
    count_parameters,
    packed_parts,
    packing,
    parameter_shapes,
)

MOST_BYTES = 5_000_000_000
_BITS = {"int8": 8, "int4": 4}
_TEMPLATES = "additional_chat_templates"
# Weights in any form, and what is written anew.
_LEFT_OUT = (".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".gguf", ".h5", ".msgpack", ".onnx")
_OWN = frozenset({"config.json", "model.safetensors.index.json", ORIGIN})


@dataclass(frozen=True, slots=True)
class Quantized:
    """Bytes of all weights before and after."""

    before: int
    after: int


def quantize(
    source: Resolved,
    out: Path,
    kind: PackingKind,
    *,
    group: int,
    progress: Progress,
    most_bytes: int = MOST_BYTES,
) -> Quantized:
    """Write the checkpoint of `source`, packed, into the new folder `out`.

    Raises UsageError where `out` is there already or `source` is quantised, CheckpointError for
    a checkpoint that does not load, AcquireError where the disk is full or cannot be written.
    """
    check_new(out)
    directory = ModelDir.open(source.path)
    with TensorFiles() as files:
        proved = prove_folder(directory, files)
        refuse_packed(proved, source.name)
        maker = _Maker(proved, files, kind, group)
        shards = plan_shards(_parts(proved, kind, group), most_bytes=most_bytes)
        before, after = stored_bytes(proved), sum(shard.nbytes for shard in shards)
        require_room(out, after)
        with disk_faults(out, after):
            _write(source, out, directory, maker, shards, progress)
    return Quantized(before, after)


def refuse_packed(proved: Proved, name: str) -> None:
    """Raise UsageError for a checkpoint that is quantised already."""
    if proved.form is not None:
        raise UsageError(
            f"{printable(name)} is quantised already, to {proved.form.bits} bits",
            hint="quantise the original",
        )


def refuse_wide_groups(source: Resolved, group: int) -> None:
    """Raise UsageError where an int4 group would be wider than the rows of some matrix, which would
    be filled up with zeros to its width. Reads headers alone, and raises as `quantize` besides.
    """
    with TensorFiles() as files:
        proved = prove_folder(ModelDir.open(source.path), files)
    refuse_packed(proved, source.name)
    shapes = parameter_shapes(proved.spec)
    rows = {
        shapes[name][1]: name
        for name, kind in reversed(packing(proved.spec, "int4").items())
        if kind == "int4"
    }
    if rows and group > (narrowest := min(rows)):
        even = narrowest - narrowest % 2
        raise UsageError(
            f"--group-size is {group}, but the rows of {rows[narrowest]} have {narrowest} numbers",
            hint=f"give an even number up to {even}, or leave it out for {INT4_GROUP}",
        )


def stored_bytes(proved: Proved) -> int:
    """Of all tensors that the parameters are made of."""
    sources = {one.name: one for item in proved.plan.assignments for one in item.sources}
    return sum(one.nbytes for one in sources.values())


def packed_bytes(proved: Proved, kind: PackingKind, group: int) -> int:
    """Of all tensors that `quantize` would write."""
    shards = plan_shards(_parts(proved, kind, group), most_bytes=MOST_BYTES)
    return sum(shard.nbytes for shard in shards)


def _parts(proved: Proved, kind: PackingKind, group: int) -> Iterator[Parts]:
    """Dtypes and shapes of what is to be stored, a parameter at a time."""
    kinds = packing(proved.spec, kind)
    for item in proved.plan.assignments:
        held = kinds.get(item.target)
        if held is None:
            yield {item.target: (item.source.dtype, item.shape)}
            continue
        parts = packed_parts(item.shape, held, group=group)
        yield {f"{item.target}.{name}": part for name, part in parts.items()}


class _Maker:
    """The tensors to be stored, of every parameter."""

    def __init__(self, proved: Proved, files: TensorFiles, kind: PackingKind, group: int) -> None:
        self.proved, self._files, self._group = proved, files, group
        self._packed = packing(proved.spec, kind)
        self.form = PackedForm(
            bits=_BITS[kind],
            group_size=group,
            parameters=count_parameters(proved.spec),
            separate_head=proved.separate_head,
        )

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Under the names of `_parts`. Raises CheckpointError for numbers that are not finite."""
        plan = self.proved.plan
        every = frozenset(item.target for item in plan.assignments)
        # Nothing is wider than this, so that all keep the dtype that they are stored in.
        read = self._files.parameters(
            plan,
            dtype=torch.float64,
            device=torch.device("cpu"),
            kept=every,
            passing=every,
        )
        for target, tensor in read:
            assert isinstance(tensor, Tensor), target
            kind = self._packed.get(target)
            if kind is None:
                yield target, tensor
                continue
            for name, part in packed(target, tensor, kind, group=self._group).parts.items():
                yield f"{target}.{name}", part


def _write(
    source: Resolved,
    out: Path,
    directory: ModelDir,
    maker: _Maker,
    shards: list[Shard],
    progress: Progress,
) -> None:
    with new_folder(out) as beside:
        progress.start("quantising", sum(shard.nbytes for shard in shards))
        try:
            write_shards(beside, shards, maker.tensors(), on_written=progress.advance)
        finally:
            progress.finish()
        if len(shards) > 1:
            (beside / "model.safetensors.index.json").write_bytes(index_of(shards))
        _copy_small(directory.path, beside)
        _write_origin(source, beside, maker.form)
        config = {**directory.config, KEY: maker.form.as_config()}
        text = json.dumps(config, indent=2, ensure_ascii=False) + "\n"
        (beside / "config.json").write_text(text, "utf-8")


def _copy_small(source: Path, target: Path) -> None:
    for file in sorted(source.iterdir()):
        hidden = file.name.startswith(".")
        if file.is_file() and not (
            hidden or file.name in _OWN or file.name.endswith((*_LEFT_OUT, ".index.json"))
        ):
            shutil.copyfile(file, target / file.name)
    if (source / _TEMPLATES).is_dir():
        (target / _TEMPLATES).mkdir()
        for file in sorted((source / _TEMPLATES).glob("*.jinja")):
            shutil.copyfile(file, target / _TEMPLATES / file.name)


def _write_origin(source: Resolved, target: Path, form: PackedForm) -> None:
    """Where it came from and its licence stay known; what the hashes were of is gone."""
    origin, entry = read_origin(source.path), catalog().get(source.name)
    if origin is None:
        if entry is None or source.source == "folder":
            return
        origin = Origin(source.source, source.name, __version__, licence=entry.licence)
    made = f"llmcli quantize {form.bits} bits, groups of {form.group_size}"
    converter = f"{origin.converter}, {made}" if origin.converter else made
    write_origin(target, replace(origin, sha256={}, converter=converter))
