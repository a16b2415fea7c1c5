"""A GGUF file made into a checkpoint folder in Hugging Face form.

The joiner of acquire/gguf/. Must not know where the file came from.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmcli.acquire.disk import disk_faults, require_room
from llmcli.acquire.gguf.architectures import ARCHITECTURES
from llmcli.acquire.gguf.plan import Move, plan_moves
from llmcli.acquire.gguf.reader import GgufFile, read_gguf
from llmcli.acquire.gguf.rules import Architecture, Shaped
from llmcli.acquire.gguf.tensors import (
    halves_order,
    less_one,
    pieces,
    refuse_unreadable,
    transposed,
)
from llmcli.acquire.gguf.tokenizer import tokenizer_files
from llmcli.acquire.gguf.vocabulary import Vocabulary, read_vocabulary
from llmcli.acquire.gguf.write import DType, Outgoing, encoded_bytes, write_safetensors
from llmcli.acquire.progress import Progress, Silent
from llmcli.checkpoint.escape import printable, shortlist
from llmcli.errors import AcquireError

if TYPE_CHECKING:
    from llmcli.acquire.gguf.tensors import Order

# Written into origin.json, so that a checkpoint made by an older rule can be told apart.
CONVERTER = "llmcli-gguf 1"
WEIGHTS = "model.safetensors"


def convert(
    gguf_file: Path,
    out_dir: Path,
    *,
    dtype: DType = "float16",
    progress: Progress | None = None,
) -> None:
    """Write the checkpoint of `gguf_file` into `out_dir`, config.json last.

    Everything is proved before the first byte is written; a folder that holds config.json
    is whole.
    """
    progress = progress or Silent()
    found = read_import(gguf_file, progress)
    texts = found.texts_for(dtype)
    tensors = [put_back(found, move) for move in found.moves]
    _write(out_dir, texts, tensors, dtype=dtype, progress=progress)


@dataclass(frozen=True, slots=True)
class Import:
    """A GGUF file that was proved, and the small files that its checkpoint has, by name."""

    file: GgufFile
    shaped: Shaped
    moves: tuple[Move, ...]
    texts: Mapping[str, dict[str, Any]]

    def texts_for(self, dtype: DType) -> dict[str, dict[str, Any]]:
        """With the dtype that most weights are written in."""
        return {**self.texts, "config.json": self.texts["config.json"] | {"torch_dtype": dtype}}


def read_import(gguf_file: Path, progress: Progress) -> Import:
    """Headers and tokenizer; no weight is read. Raises CheckpointError for what cannot be had."""
    file = read_gguf(gguf_file)
    architecture = _architecture(file)
    shaped = architecture.config(file)
    moves = plan_moves(file, architecture, shaped)
    for move in {move.source.kind: move for move in moves}.values():
        refuse_unreadable(file, move.source)
    vocabulary = read_vocabulary(file)
    if len(vocabulary.tokens) > shaped.sizes["vocab"]:
        raise file.fault(
            f"has {len(vocabulary.tokens)} tokens for {shaped.sizes['vocab']} embeddings"
        )
    texts = tokenizer_files(file, vocabulary, architecture.sentences)
    texts["generation_config.json"] = _generation_config(vocabulary)
    texts["config.json"] = _with_ids(shaped.config, vocabulary)
    _tell_unread(file, architecture, shaped, progress)
    return Import(file, shaped, tuple(moves), texts)


def _architecture(file: GgufFile) -> Architecture:
    parts = file.metadata.get("split.count")
    if isinstance(parts, int) and parts > 1:
        raise file.fault(f"is one of {parts} parts", "merge the parts with llama.cpp's gguf-split")
    name = file.text("general.architecture") or ""
    if name not in ARCHITECTURES:
        raise file.fault(
            f"has the architecture {name!r:.60}",
            f"the architectures that can be imported are {', '.join(ARCHITECTURES)}",
        )
    return ARCHITECTURES[name]


def put_back(found: Import, move: Move) -> Outgoing:
    """The tensor as the checkpoint has it: what the GGUF converter did is undone."""
    file, source, shape = found.file, move.source, move.source.shape
    if move.form == "transposed":
        return Outgoing(move.target, shape[::-1], partial(transposed, file, source))
    if move.form == "one_added":
        return Outgoing(move.target, shape, partial(less_one, file, source))
    return Outgoing(move.target, shape, partial(pieces, file, source, row_order(found, move)))


def row_order(found: Import, move: Move) -> Order | None:
    """Which row of the file each row of the checkpoint is; None where none has moved."""
    if move.form not in ("query", "key"):
        return None
    heads = found.shaped.sizes["heads" if move.form == "query" else "kv_heads"]
    return halves_order(heads, move.source.shape[0])


def _write(
    out_dir: Path,
    texts: dict[str, dict[str, Any]],
    tensors: list[Outgoing],
    *,
    dtype: DType,
    progress: Progress,
) -> None:
    needed = encoded_bytes(tensors, dtype)
    _refuse_foreign(out_dir, {WEIGHTS, *texts})
    require_room(out_dir, needed)
    with disk_faults(out_dir, needed):
        out_dir.mkdir(parents=True, exist_ok=True)
        # Without its config.json the folder does not count, until it is whole again.
        (out_dir / "config.json").unlink(missing_ok=True)
        progress.start("converting", needed)
        try:
            write_safetensors(out_dir / WEIGHTS, tensors, dtype=dtype, advance=progress.advance)
        finally:
            progress.finish()
        for name, content in texts.items():
            write_json(out_dir / name, content)


def _refuse_foreign(out_dir: Path, ours: set[str]) -> None:
    """Refuse a folder that holds anything else: two checkpoints must not mix."""
    if not out_dir.is_dir():
        return
    foreign = sorted(path.name for path in out_dir.iterdir() if path.name not in ours)
    if foreign:
        raise AcquireError(
            f"{printable(str(out_dir))} holds other files: {shortlist(foreign, 3)}",
            hint="give a new or an empty folder",
        )


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Put in place whole."""
    partial_path = path.with_name(path.name + ".partial")
    partial_path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", "utf-8")
    partial_path.replace(path)


def _with_ids(config: dict[str, Any], vocabulary: Vocabulary) -> dict[str, Any]:
    return config | {
        "bos_token_id": vocabulary.bos,
        "eos_token_id": vocabulary.eos,
        "pad_token_id": vocabulary.padding,
    }


def _generation_config(vocabulary: Vocabulary) -> dict[str, Any]:
    stops = vocabulary.stops
    ids = {
        "bos_token_id": vocabulary.bos,
        "eos_token_id": stops[0] if len(stops) == 1 else stops,
        "pad_token_id": vocabulary.padding,
    }
    return {key: value for key, value in ids.items() if value is not None and value != []}


def _tell_unread(
    file: GgufFile, architecture: Architecture, shaped: Shaped, progress: Progress
) -> None:
    prefix = architecture.name + "."
    unread = [
        key for key in file.metadata if key.startswith(prefix) and key not in shaped.read_keys
    ]
    if unread:
        progress.notice(f"{printable(file.path.name)}: not read: {shortlist(unread)}")
