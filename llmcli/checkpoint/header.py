"""The header of a safetensors file, read and proved without touching the data.

Format: 8 bytes little-endian header length, a JSON object, then the data. Every length is
checked against the file's true size before anything is allocated. Must not know torch.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, NoReturn, TypeGuard

from llmcli.checkpoint.escape import printable
from llmcli.errors import CheckpointError

# Bits per element, as the format's reference implementation names the dtypes.
DTYPE_BITS: Mapping[str, int] = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
    "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32,
    "C64": 64, "F64": 64, "I64": 64, "U64": 64,
}  # fmt: skip

# The reference implementation's own limit on the header, and ours on its entries.
MAX_HEADER_BYTES = 100_000_000
MAX_TENSORS = 100_000

# No tensor has more dimensions (torch's own limit), and no file so many bytes.
_MAX_DIMENSIONS = 64
_MAX_NUMBER = 2**63 - 1

# Whole words: a lone "<" is also the first byte of every 256th sound file's header length.
_WEB_PAGES = (b"<!doctype", b"<html", b"<?xml", b"<head")

_AGAIN = "fetch the file again; a download that was cut or altered looks like this"


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One tensor in a file: bytes [start, end) counted from the file's beginning."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: Path
    start: int
    end: int

    @property
    def nbytes(self) -> int:
        return self.end - self.start


def encode_header(entries: Mapping[str, object]) -> bytes:
    """The bytes that stand before the data; `entries` are those of the tensors."""
    text = json.dumps({"__metadata__": {"format": "pt"}, **entries}, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


@dataclass(frozen=True, slots=True)
class Header:
    """All tensors of one file by name, in the file's own order, and its free metadata."""

    tensors: dict[str, StoredTensor]
    metadata: dict[str, str]


def read_header(path: Path, *, whole: bool = True) -> Header:
    """The proved header of the safetensors file at `path`.

    With `whole` False the data may be cut or missing, which is enough for a listing.

    Raises CheckpointError, naming the file and both values, for whatever is not exactly one
    header and the data that it promises: pointers, cut files, holes, overlaps, duplicates.
    """
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(0)
            text = _header_text(file, path, size)
    except OSError as error:
        raise CheckpointError(
            f"{printable(str(path))} cannot be read: {error.strerror or error}",
            hint="check that it is a file and that you may read it",
        ) from error
    entries = _parse(text, path)
    metadata = entries.pop("__metadata__", {})
    if not isinstance(metadata, dict):
        _refuse(path, f"__metadata__ is {type(metadata).__name__}, not an object")
    tensors = _tensors(entries, path, data_start=8 + len(text), size=size if whole else None)
    return Header(tensors, {str(key): str(value) for key, value in metadata.items()})


def _header_text(file: BinaryIO, path: Path, size: int) -> bytes:
    first = file.read(64)
    if first.startswith(b"version https://git-lfs"):
        _refuse(
            path,
            f"is a git-lfs pointer of {size} bytes, not the weights",
            hint="run `git lfs pull` in its folder, or `llmcli pull` the model",
        )
    if size < 8:
        _refuse(path, f"has {size} bytes, too few for a safetensors file", hint=_AGAIN)
    if first.lstrip().lower().startswith(_WEB_PAGES):
        _refuse(path, f"is a web page of {size} bytes, not the weights", hint=_AGAIN)
    length = int.from_bytes(first[:8], "little")
    if length > MAX_HEADER_BYTES:
        _refuse(
            path,
            f"does not begin like a safetensors file: header of {length} bytes, "
            f"limit {MAX_HEADER_BYTES}",
            hint="the file is of another kind, or damaged at its beginning",
        )
    if 8 + length > size:
        _refuse(path, f"is cut: header ends at byte {8 + length}, file at {size}", hint=_AGAIN)
    file.seek(8)
    return file.read(length)


def _parse(text: bytes, path: Path) -> dict[str, Any]:
    def no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        entries = dict(pairs)
        if len(entries) != len(pairs):
            twice, _ = Counter(key for key, _ in pairs).most_common(1)[0]
            _refuse(path, f"names `{printable(twice)}` twice in its header")
        return entries

    try:
        header = json.loads(text.decode("utf-8"), object_pairs_hook=no_duplicates)
    except (ValueError, RecursionError) as error:
        _refuse(path, f"has a header that is not JSON: {printable(str(error))}", hint=_AGAIN)
    if not isinstance(header, dict):
        _refuse(path, f"has a header that is {type(header).__name__}, not an object")
    if len(header) > MAX_TENSORS:
        _refuse(path, f"lists {len(header)} tensors, limit {MAX_TENSORS}")
    return header


def _tensors(
    entries: dict[str, Any], path: Path, *, data_start: int, size: int | None
) -> dict[str, StoredTensor]:
    tensors = [_tensor(name, entry, path, data_start) for name, entry in entries.items()]
    tensors.sort(key=lambda tensor: (tensor.start, tensor.end))
    position = data_start
    for tensor in tensors:
        if tensor.start != position:
            kind = "leaves a hole before" if tensor.start > position else "overlaps at"
            _refuse(
                path,
                f"{kind} `{printable(tensor.name)}`: begins at byte {tensor.start}, "
                f"expected {position}",
            )
        position = tensor.end
    if size is None:
        size = position
    if position > size:
        _refuse(path, f"is cut: data ends at byte {position}, file at {size}", hint=_AGAIN)
    if position < size:
        _refuse(path, f"has {size - position} bytes after its last tensor (file of {size})")
    return {tensor.name: tensor for tensor in tensors}


def _tensor(name: str, entry: Any, path: Path, data_start: int) -> StoredTensor:
    shown = printable(name)
    if not isinstance(entry, dict):
        _refuse(path, f"describes `{shown}` with {type(entry).__name__}, not an object")
    dtype, shape, offsets = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
    if not isinstance(dtype, str) or dtype not in DTYPE_BITS:
        _refuse(path, f"stores `{shown}` as unknown dtype {printable(repr(dtype))}")
    if not _naturals(shape):
        _refuse(path, f"gives `{shown}` the shape {printable(repr(shape))}")
    if not _naturals(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        _refuse(path, f"gives `{shown}` the byte range {printable(repr(offsets))}")
    begin, end = offsets
    bits = prod(shape) * DTYPE_BITS[dtype]
    if bits != (end - begin) * 8:
        _refuse(
            path,
            f"gives `{shown}` {end - begin} bytes, but {dtype} {printable(repr(shape))} "
            f"needs {printable(str((bits + 7) // 8))}",
        )
    return StoredTensor(name, dtype, tuple(shape), path, data_start + begin, data_start + end)


def _naturals(value: object) -> TypeGuard[list[int]]:
    return (
        isinstance(value, list)
        and len(value) <= _MAX_DIMENSIONS
        and all(type(item) is int and 0 <= item <= _MAX_NUMBER for item in value)
    )


def _refuse(path: Path, problem: str, *, hint: str = "") -> NoReturn:
    raise CheckpointError(
        f"{printable(path.name)} {problem}",
        hint=hint or f"the file is not a valid safetensors file: {printable(str(path))}",
    )
