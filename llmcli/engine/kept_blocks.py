"""`llmcli convert --keep-quantized`: a GGUF file's blocks, moved into llmcli's quantised form.

Nothing is quantised anew, and no number is changed: what has no place in that form is written as
plain numbers. The new folder appears whole or not at all. Must not know terminals.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import torch
from torch import Tensor

from llmcli.acquire.disk import disk_faults, require_room
from llmcli.acquire.gguf.blocks import KEPT, blocks
from llmcli.acquire.gguf.plan import Move
from llmcli.acquire.gguf.write import FORMAT, DType, encode_checked
from llmcli.acquire.gguf_import import Import, put_back, read_import, row_order, write_json
from llmcli.acquire.progress import Progress
from llmcli.checkpoint.escape import printable
from llmcli.checkpoint.expand import Piece
from llmcli.checkpoint.header import StoredTensor
from llmcli.checkpoint.packed_form import KEY, PackedForm
from llmcli.checkpoint.plan import Assignment
from llmcli.checkpoint.tensors import arrange
from llmcli.engine.new_folder import check_new, new_folder
from llmcli.engine.packed_file import Parts, index_of, plan_shards, write_shards
from llmcli.errors import UsageError
from llmcli.families import read_spec
from llmcli.families.proof import prove
from llmcli.spec import INT4_GROUP, DecoderSpec, count_parameters, packable

if TYPE_CHECKING:
    from llmcli.acquire.gguf.tensors import Order

MOST_BYTES: Final = 5_000_000_000
# Plain numbers keep the precision that they have in the file.
_OWN: Final[Mapping[str, DType]] = {"F32": "float32", "F64": "float32", "BF16": "bfloat16"}
_TORCH: Final[Mapping[DType, torch.dtype]] = {
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float32": torch.float32,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptBlocks:
    """How many matrices were moved as they are, and how many became floats, by GGUF's kinds.

    `before` and `after` are bytes of all weights.
    """

    kept: Mapping[str, int]
    plain: Mapping[str, int]
    before: int
    after: int


def convert_kept(
    gguf_file: Path,
    out: Path,
    *,
    dtype: DType | None,
    progress: Progress,
    most_bytes: int = MOST_BYTES,
) -> KeptBlocks:
    """Write the checkpoint of `gguf_file` into the new folder `out`, its blocks kept.

    What is not kept is written as `dtype`; None is each tensor's own, or float16 where it is
    quantised. Raises UsageError where `out` is there already or nothing can be kept,
    CheckpointError or UnsupportedError for a file that cannot be imported or run.
    """
    check_new(out)
    found = read_import(gguf_file, progress)
    mover = _Mover(found, dtype)
    if not mover.kept:
        raise UsageError(
            f"{printable(gguf_file.name)} holds no blocks that can be kept: its matrices are "
            f"{', '.join(mover.plain) or 'none'}",
            hint=f"leave --keep-quantized out; kept are {', '.join(sorted(KEPT))}",
        )
    shards = plan_shards(mover.parts(), most_bytes=most_bytes)
    after = sum(shard.nbytes for shard in shards)
    texts = found.texts_for(dtype or "float32")
    texts["config.json"][KEY] = mover.form.as_config()
    require_room(out, after)
    with disk_faults(out, after), new_folder(out) as beside:
        progress.start("converting", after)
        try:
            write_shards(beside, shards, mover.tensors(), on_written=progress.advance)
        finally:
            progress.finish()
        if len(shards) > 1:
            (beside / "model.safetensors.index.json").write_bytes(index_of(shards))
        for name, content in texts.items():
            write_json(beside / name, content)
    before = sum(move.source.rows * move.source.row_bytes for move in found.moves)
    return KeptBlocks(kept=mover.kept, plain=mover.plain, before=before, after=after)


class _Mover:
    """Each of the decoder's parameters, traced back to the tensor of the GGUF file."""

    def __init__(self, found: Import, dtype: DType | None) -> None:
        self._found, self._dtype = found, dtype
        self._moves = {move.target: move for move in found.moves}
        # What a config does not tell, the loader warns of.
        family, spec, _ = read_spec(found.texts["config.json"])
        plan = prove(family, spec, self._promised())
        self._assignments = plan.assignments
        able = packable(spec)
        self._packed = {
            item.target: rows
            for item in plan.assignments
            if item.target in able and (rows := self._rows(item)) is not None
        }
        self.kept, self.plain = self._counted(able)
        self.form = self._form(spec)

    def parts(self) -> Iterator[Parts]:
        """Dtypes and shapes, a parameter at a time."""
        for item in self._assignments:
            if item.target not in self._packed:
                yield {item.target: (FORMAT[self._written(item)][0], item.shape)}
                continue
            held = KEPT[self._move(item).source.kind]
            rows, columns = item.shape
            groups = columns // held.group
            names = {"codes": ("I8", item.shape), "scale": ("F32", (rows, groups))}
            if held.bits == 4:
                halves = ("F16", (rows, groups))
                names = {
                    "codes": ("U8", (rows, groups, held.group // 2)),
                    "scale": halves,
                    "minimum": halves,
                }
            yield {f"{item.target}.{name}": part for name, part in names.items()}

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Under the names of `parts`. Raises CheckpointError for numbers that cannot be held."""
        for item in self._assignments:
            if item.target not in self._packed:
                yield item.target, self._plain(item)
                continue
            order = self._packed[item.target]
            for name, part in blocks(self._found.file, self._move(item).source, order).items():
                yield f"{item.target}.{name}", torch.from_numpy(part)

    def _plain(self, item: Assignment) -> Tensor:
        """As the ordinary conversion would write it, and a loader then take it apart."""
        outgoing, dtype = put_back(self._found, self._move(item)), self._written(item)
        held = [
            torch.from_numpy(encode_checked(outgoing.name, values, dtype)).view(_TORCH[dtype])
            for values in outgoing.pieces()
        ]
        whole = torch.cat([one.flatten() for one in held]).view(outgoing.shape)
        return arrange(whole, item.piece)

    def _written(self, item: Assignment) -> DType:
        return self._dtype or _OWN.get(self._move(item).source.kind, "float16")

    def _rows(self, item: Assignment) -> Order | None:
        """The rows of the GGUF tensor that make the matrix; None where its blocks cannot."""
        move, piece = self._move(item), item.piece
        # Blocks run along a row of the file, which must be a row of the matrix too.
        turned = (move.form == "transposed") != piece.transpose
        if move.source.kind not in KEPT or turned or move.form == "one_added":
            return None
        order = row_order(self._found, move)
        rows = np.arange(move.source.rows) if order is None else order
        return _cut(rows, piece)

    def _move(self, item: Assignment) -> Move:
        (name,) = item.piece.sources
        return self._moves[name]

    def _promised(self) -> dict[str, StoredTensor]:
        """The headers of the ordinary conversion, which a family's rules speak of."""
        headers, at = {}, 0
        for move in self._found.moves:
            shape, path = put_back(self._found, move).shape, self._found.file.path
            end = at + 4 * prod(shape)
            headers[move.target] = StoredTensor(move.target, "F32", shape, path, at, end)
            at = end
        return headers

    def _counted(self, able: frozenset[str]) -> tuple[Counter[str], Counter[str]]:
        """By kind: matrices whose blocks are kept, and those of which floats are made."""
        kept, plain = Counter[str](), Counter[str]()
        for item in self._assignments:
            if item.target in able:
                counts = kept if item.target in self._packed else plain
                counts[self._move(item).source.kind] += 1
        return kept, plain

    def _form(self, spec: DecoderSpec) -> PackedForm:
        sizes = Counter[int]()
        for item in self._assignments:
            if item.target in self._packed:
                sizes[KEPT[self._move(item).source.kind].bits] += prod(item.shape)
        bits = sizes.most_common(1)[0][0] if sizes else 8
        return PackedForm(
            bits=bits, group_size=INT4_GROUP, parameters=count_parameters(spec), separate_head=False
        )


def _cut(rows: Order, piece: Piece) -> Order:
    assert piece.index is None, piece.target
    if piece.cut is None:
        return rows
    cut = piece.cut
    return rows.reshape(cut.groups, cut.width)[:, cut.start : cut.stop].reshape(-1)
