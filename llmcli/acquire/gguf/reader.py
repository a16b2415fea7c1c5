"""The header of a GGUF file: metadata and where each tensor lies, every length proved.

The file is someone else's: a count or a length is compared with the bytes that are left
before anything is allocated. Must not know architectures, tokenizers or dequantising.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, TypeVar

from llmcli.checkpoint.escape import printable
from llmcli.errors import CheckpointError

VERSIONS = (2, 3)
ALIGNMENT = 32

_SCALARS = {
    0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d",
}  # fmt: skip
_STRING, _ARRAY = 8, 9
_MAX_DIMS = 4
# The least bytes that one key with its value, and one tensor's entry, can take.
_LEAST_KEY, _LEAST_TENSOR = 13, 32

_AGAIN = "fetch the file again; a download that was cut or altered looks like this"
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One tensor in the file: `rows` rows of `row_bytes` bytes each from byte `start`."""

    name: str
    kind: str
    shape: tuple[int, ...]
    start: int
    rows: int
    row_bytes: int


@dataclass(frozen=True, slots=True)
class GgufFile:
    """What a GGUF file says about itself, and its tensors by name."""

    path: Path
    metadata: Mapping[str, Any]
    tensors: Mapping[str, StoredTensor]

    def text(self, key: str) -> str | None:
        return self.typed(key, str)

    def integer(self, key: str) -> int | None:
        value = self.metadata.get(key)
        if isinstance(value, bool):
            raise self.fault(f"{key} is a truth value, not a number")
        return self.typed(key, int)

    def number(self, key: str) -> float | None:
        value = self.metadata.get(key)
        return float(value) if isinstance(value, int) else self.typed(key, float)

    def flag(self, key: str) -> bool | None:
        return self.typed(key, bool)

    def items(self, key: str, kind: type[_Value]) -> list[_Value] | None:
        """The array at `key`, proved to hold only `kind`."""
        values = self.typed(key, list)
        if values is not None and not all(isinstance(value, kind) for value in values):
            raise self.fault(f"{key} holds something other than {kind.__name__}")
        return values

    def typed(self, key: str, kind: type[_Value]) -> _Value | None:
        value = self.metadata.get(key)
        if value is None or isinstance(value, kind):
            return value
        raise self.fault(f"{printable(key)} is {type(value).__name__}, not {kind.__name__}")

    def fault(self, reason: str, hint: str = "") -> CheckpointError:
        return fault(self.path, reason, hint)


def fault(path: Path, reason: str, hint: str = "") -> CheckpointError:
    """The error of a damaged or unsuitable file, to be raised."""
    return CheckpointError(f"{printable(str(path))}: {reason}", hint=hint or _AGAIN)


def read_gguf(path: Path) -> GgufFile:
    """The proved header of the GGUF file at `path`; CheckpointError for anything damaged."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            if size < 4:
                raise fault(path, f"is {size} bytes long, too short for a GGUF file")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _Reader(path, data, size).read()
    except OSError as error:
        raise CheckpointError(
            f"{printable(str(path))} cannot be read: {error.strerror or error}",
            hint="check that it is a file and that you may read it",
        ) from error


class _Reader:
    """A cursor over the header; it never steps past the end of the file."""

    def __init__(self, path: Path, data: mmap.mmap, size: int) -> None:
        self._path = path
        self._data = data
        self._size = size
        self._at = 0

    def read(self) -> GgufFile:
        tensor_count, key_count = self._preamble()
        metadata = self._metadata(key_count)
        entries = [self._entry() for _ in range(tensor_count)]
        alignment = metadata.get("general.alignment", ALIGNMENT)
        if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
            raise self._fault(
                f"general.alignment is {printable(str(alignment))}, not a power of two"
            )
        start = -(-self._at // alignment) * alignment
        tensors: dict[str, StoredTensor] = {}
        for name, shape, kind, offset in entries:
            if name in tensors:
                raise self._fault(f"lists tensor {printable(name)} twice")
            tensors[name] = self._tensor(name, shape, kind, start + offset)
        return GgufFile(self._path, metadata, tensors)

    def _preamble(self) -> tuple[int, int]:
        magic = bytes(self._data[:4])
        if magic != b"GGUF":
            raise self._fault(f"begins with {printable(repr(magic)[1:])}, not with 'GGUF'")
        self._at = 4
        version = self._scalar("I")
        if version & 0xFFFF == 0:
            raise self._fault(
                "is a big-endian GGUF file", "get the little-endian file of this model"
            )
        if version not in VERSIONS:
            known = " and ".join(map(str, VERSIONS))
            raise self._fault(f"is GGUF version {version}; {known} are known", "get a newer file")
        tensor_count, key_count = self._scalar("Q"), self._scalar("Q")
        self._fits(tensor_count, _LEAST_TENSOR, "tensors")
        self._fits(key_count, _LEAST_KEY, "keys")
        return tensor_count, key_count

    def _metadata(self, count: int) -> dict[str, Any]:
        metadata: dict[str, Any] = {}
        for _ in range(count):
            key = self._string()
            if key in metadata:
                raise self._fault(f"holds the key {printable(key)} twice")
            metadata[key] = self._value(self._scalar("I"), key)
        return metadata

    def _value(self, kind: int, key: str) -> Any:
        if kind in _SCALARS:
            return self._scalar(_SCALARS[kind])
        if kind == _STRING:
            return self._string()
        if kind == _ARRAY:
            return self._array(key)
        raise self._fault(f"key {printable(key)} has the unknown type {kind}")

    def _array(self, key: str) -> list[Any]:
        kind, count = self._scalar("I"), self._scalar("Q")
        if kind in _SCALARS:
            form = _SCALARS[kind]
            self._fits(count, struct.calcsize(form), f"values of {printable(key)}")
            return list(self._unpack(f"<{count}{form}"))
        if kind == _STRING:
            self._fits(count, 8, f"texts of {printable(key)}")
            return [self._string() for _ in range(count)]
        raise self._fault(f"key {printable(key)} is an array of the unknown type {kind}")

    def _entry(self) -> tuple[str, tuple[int, ...], int, int]:
        name = self._string()
        dims = self._scalar("I")
        if not 1 <= dims <= _MAX_DIMS:
            raise self._fault(
                f"tensor {printable(name)} has {dims} dimensions, not 1 to {_MAX_DIMS}"
            )
        # The file counts the fastest-moving dimension first.
        shape = tuple(reversed(self._unpack(f"<{dims}Q")))
        kind, offset = self._unpack("<IQ")
        return name, shape, kind, offset

    def _tensor(self, name: str, shape: tuple[int, ...], kind: int, start: int) -> StoredTensor:
        from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

        try:
            known = GGMLQuantizationType(kind)
        except ValueError:
            raise self._fault(f"tensor {printable(name)} has the unknown type {kind}") from None
        per_block, block_bytes = GGML_QUANT_SIZES[known]
        if shape[-1] % per_block:
            raise self._fault(
                f"tensor {printable(name)} has rows of {shape[-1]} values; "
                f"{known.name} stores blocks of {per_block}"
            )
        row_bytes = shape[-1] // per_block * block_bytes
        rows = prod(shape[:-1])
        if start + rows * row_bytes > self._size:
            raise self._fault(
                f"tensor {printable(name)} ends at byte {start + rows * row_bytes:,}, "
                f"the file has {self._size:,}"
            )
        return StoredTensor(name, known.name, shape, start, rows, row_bytes)

    def _string(self) -> str:
        length = self._scalar("Q")
        self._fits(length, 1, "bytes of text")
        raw = self._data[self._at : self._at + length]
        self._at += length
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            raise self._fault(f"the text before byte {self._at:,} is not UTF-8") from None

    def _scalar(self, form: str) -> Any:
        return self._unpack("<" + form)[0]

    def _unpack(self, form: str) -> tuple[Any, ...]:
        width = struct.calcsize(form)
        self._fits(1, width, "bytes of header")
        values = struct.unpack_from(form, self._data, self._at)
        self._at += width
        return values

    def _fits(self, count: int, width: int, what: str) -> None:
        left = self._size - self._at
        if count * width > left:
            raise self._fault(
                f"promises {count * width:,} or more bytes for {what} where {left:,} are left"
            )

    def _fault(self, reason: str, hint: str = "") -> CheckpointError:
        return fault(self._path, reason, hint)
