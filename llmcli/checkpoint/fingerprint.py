"""A short name for what a checkpoint's folder holds, told quickly: weights are sampled, not read.

Other weights of the same form (a fine-tune) differ all over, so some pieces of each file do.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

_WHOLE = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json")
_PIECE = 65536
_PIECES = 16


def fingerprint(folder: Path) -> str:
    """16 hexadecimal digits over the small files, and over sizes and pieces of the weights.

    Raises OSError where a file cannot be read.
    """
    digest = hashlib.sha256()
    weights = sorted(folder.glob("*.safetensors"))
    for file in (*(folder / name for name in _WHOLE), *weights):
        if not file.is_file():
            continue
        size = file.stat().st_size
        digest.update(f"{file.name} {size}\n".encode())
        with file.open("rb") as stream:
            for start in _starts(size) if file in weights else (0,):
                stream.seek(start)
                digest.update(stream.read(_PIECE) if file in weights else stream.read())
    return digest.hexdigest()[:16]


def _starts(size: int) -> list[int]:
    """Where the pieces of a file begin: its first bytes, its last ones, and evenly between."""
    last = max(size - _PIECE, 0)
    return sorted({last * at // (_PIECES - 1) for at in range(_PIECES)})
