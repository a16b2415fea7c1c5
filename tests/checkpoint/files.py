"""safetensors files written byte by byte, so that each can be wrong in one way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def entry(dtype: str, shape: list[Any], start: Any, end: Any) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


def packed(header: object, data: bytes = b"", *, length: int | None = None) -> bytes:
    """Length, header, data; `header` is JSON text, bytes or an object; `length` may lie."""
    if isinstance(header, str):
        text = header.encode()
    elif isinstance(header, bytes):
        text = header
    else:
        text = json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


# Two float32 tensors: `a` of four numbers, `b` of two.
GOOD = {"a": entry("F32", [2, 2], 0, 16), "b": entry("F32", [2], 16, 24)}
DATA = bytes(range(24))
