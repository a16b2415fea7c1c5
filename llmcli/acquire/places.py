"""Where checkpoints lie on this machine, and what lies there.

Reads config.json, origin.json and safetensors headers, never weights. Must not fetch anything.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

from llmcli.acquire.catalog import catalog
from llmcli.acquire.origin import read_origin
from llmcli.checkpoint.escape import printable
from llmcli.errors import LlmcliError

CONFIG = "config.json"


@dataclass(frozen=True, slots=True)
class Installed:
    """A checkpoint folder found on this machine, for a listing.

    `first` marks the folder that its name means; another of the same name is never used.
    `problem` says why the folder cannot be used, and is None when nothing seems wrong.
    """

    name: str
    path: Path
    bytes: int
    model_type: str | None
    parameters: int | None
    source: str
    problem: str | None = None
    first: bool = True


def home() -> Path:
    """The folder that belongs to llmcli: $LLMCLI_HOME, or the platform's user data folder."""
    chosen = os.environ.get("LLMCLI_HOME")
    if chosen:
        return Path(chosen).expanduser().absolute()
    import platformdirs

    return Path(platformdirs.user_data_dir("llmcli", appauthor=False))


def pulled_folder() -> Path:
    """Where pulled checkpoints are put."""
    return home() / "weights"


def weights_folders() -> list[Path]:
    """The folders searched for a name, first one first."""
    return [Path.cwd() / "weights", pulled_folder()]


def embedded(name: str) -> Path | None:
    """The folder of a checkpoint that travels with llmcli, or None."""
    for folder in _embedded_folders():
        if is_checkpoint(folder / name):
            return folder / name
    return None


def is_checkpoint(folder: Path) -> bool:
    """Whether `folder` counts as a checkpoint: it holds config.json."""
    try:
        return (folder / CONFIG).is_file()
    except (OSError, ValueError):
        return False


def installed() -> list[Installed]:
    """Every checkpoint here, in the order of search, the one used first marked among equals."""
    found: list[Installed] = []
    names: set[str] = set()
    paths: set[Path] = set()
    for name, path in _candidates():
        real = path.resolve()
        if real in paths:
            continue
        paths.add(real)
        item, usable = _describe(name, path), is_checkpoint(path)
        found.append(replace(item, first=usable and name not in names))
        if usable:
            names.add(name)
    return found


def _embedded_folders() -> list[Path]:
    package = Path(__file__).resolve().parent.parent
    # The second is an editable install, where the repository's own folder is used.
    return [package / "_weights", package.parent / "weights"]


def _candidates() -> Iterator[tuple[str, Path]]:
    for folder in weights_folders():
        yield from _in_folder(folder)
    for entry in catalog().values():
        # By name: in an editable install the folder may hold a user's own checkpoints too.
        inside = embedded(entry.name) if entry.embedded else None
        if inside:
            yield entry.name, inside


def _in_folder(folder: Path) -> Iterator[tuple[str, Path]]:
    for child in _subfolders(folder):
        if is_checkpoint(child):
            yield child.name, child
            continue
        owned = [inner for inner in _subfolders(child) if is_checkpoint(inner)]
        for inner in owned:
            yield f"{child.name}/{inner.name}", inner
        if not owned and _holds_files(child):
            yield child.name, child


def _subfolders(folder: Path) -> list[Path]:
    try:
        children = sorted(folder.iterdir())
        return [child for child in children if child.is_dir() and not child.name.startswith(".")]
    except OSError:
        return []


def _holds_files(folder: Path) -> bool:
    try:
        return any(not child.name.startswith(".") for child in folder.iterdir())
    except OSError:
        return True


def _describe(name: str, path: Path) -> Installed:
    nothing = Installed(printable(name), path, 0, None, None, "unknown")
    try:
        source = _source(path)
        size = sum(file.stat().st_size for file in path.iterdir() if file.is_file())
        item = replace(nothing, bytes=size, source=source)
        if not is_checkpoint(path):
            return replace(item, problem=f"holds no {CONFIG}")
        config = _config(path / CONFIG)
        item = replace(item, model_type=printable(config["model_type"]))
        return replace(item, parameters=_parameters(path, config))
    except LlmcliError as error:
        return replace(nothing, problem=error.message)
    except OSError as error:
        return replace(nothing, problem=f"cannot be read: {error.strerror or error}")


def _source(path: Path) -> str:
    if path.parent in _embedded_folders():
        return "embedded"
    origin = read_origin(path)
    return origin.text if origin else "folder"


def _config(file: Path) -> dict[str, Any]:
    """Config.json, which names a model_type."""
    try:
        values: Any = json.loads(file.read_text("utf-8"))
    except (ValueError, RecursionError) as error:
        raise LlmcliError(f"{CONFIG} is not JSON: {printable(str(error))}") from None
    if not isinstance(values, dict):
        raise LlmcliError(f"{CONFIG} holds {type(values).__name__}, not an object")
    if not isinstance(values.get("model_type"), str):
        raise LlmcliError(f"{CONFIG} names no model_type")
    return values


def _parameters(path: Path, config: dict[str, Any]) -> int:
    """Numbers stored; of a quantised folder those that its codes stand for, as its config says."""
    from llmcli.checkpoint.header import read_header
    from llmcli.checkpoint.packed_form import packed_form
    from llmcli.families import read_spec
    from llmcli.spec import count_parameters

    files = sorted(path.glob("*.safetensors"))
    gone = [file.name for file in files if not file.exists()]
    if gone:
        raise LlmcliError(f"{printable(gone[0])} links to a file that is gone")
    if not files:
        raise LlmcliError("holds no .safetensors file")
    headers = [read_header(file) for file in files]
    if packed_form(config) is not None:
        return count_parameters(read_spec(config)[1])
    return sum(prod(tensor.shape) for header in headers for tensor in header.tensors.values())
