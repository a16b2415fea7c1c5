"""What a checkpoint is, whatever it is called and wherever it lies: the SHA-256 of its files.

Nothing is remembered between runs: every file is read and hashed each time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from llmcli.acquire.disk import sha256_of
from llmcli.checkpoint.directory import ModelDir
from llmcli.checkpoint.escape import printable

# Everything beside the weights that can change an id or a text.
_SMALL = (
    "config.json",
    "generation_config.json",
    "model.safetensors.index.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
)
_TEMPLATES = "additional_chat_templates"


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """One file's content."""

    sha256: str
    bytes: int


def identify(
    folder: Path, *, on_progress: Callable[[int, int], None] | None = None
) -> dict[str, FileIdentity]:
    """By name in the folder; `on_progress(bytes done, bytes in all)` is called meanwhile.

    Raises CheckpointError where the folder holds no checkpoint.
    """
    paths = list(_files(folder))
    sizes = [path.stat().st_size for path in paths]
    done, total = 0, sum(sizes)

    def count(new: int) -> None:
        nonlocal done
        done += new
        if on_progress is not None:
            on_progress(done, total)

    found = {}
    for path, size in zip(paths, sizes, strict=True):
        name = path.relative_to(folder).as_posix()
        found[name] = FileIdentity(sha256_of(path, count), size)
    return found


def differences(
    then: Mapping[str, FileIdentity], now: Mapping[str, FileIdentity]
) -> tuple[str, ...]:
    """One phrase for each file that is not the same."""
    found = []
    for name in sorted({*then, *now}):
        old, new, shown = then.get(name), now.get(name), printable(name, 60)
        if old is None:
            found.append(f"{shown} was not there")
        elif new is None:
            found.append(f"{shown} is not there any more")
        elif old != new:
            found.append(f"{shown} has sha256 {new.sha256[:12]}, then {old.sha256[:12]}")
    return tuple(found)


def fingerprint(files: Mapping[str, FileIdentity]) -> str:
    """One hash of what keys and values depend on: config.json and the weights."""
    decisive = sorted(
        f"{name} {one.sha256}"
        for name, one in files.items()
        if name == "config.json" or name.endswith(".safetensors")
    )
    return hashlib.sha256("\n".join(decisive).encode()).hexdigest()


def _files(folder: Path) -> Iterator[Path]:
    yield from (folder / name for name in _SMALL if (folder / name).is_file())
    yield from sorted((folder / _TEMPLATES).glob("*.jinja"))
    yield from sorted({tensor.file for tensor in ModelDir.open(folder).tensors().values()})
