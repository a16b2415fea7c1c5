"""Which folder `--model` means: a folder, a name, a hub id, or the default.

Must not know how anything is fetched, only that it can be.
"""

from __future__ import annotations

import os
from pathlib import Path

from llmcli.acquire.catalog import catalog
from llmcli.acquire.origin import read_origin
from llmcli.acquire.places import embedded, is_checkpoint, weights_folders
from llmcli.acquire.progress import Progress
from llmcli.acquire.pull import Resolved, is_hub_id, pull, unknown
from llmcli.checkpoint.escape import printable
from llmcli.errors import AcquireError, CheckpointError, LlmcliError, UsageError

DEFAULT = "smollm2"
FALLBACK = "stories260k"
VARIABLE = "LLMCLI_MODEL"

__all__ = ["DEFAULT", "FALLBACK", "VARIABLE", "Resolved", "resolve"]


def resolve(model: str | None, *, progress: Progress, allow_fetch: bool = True) -> Resolved:
    """The checkpoint folder for `model`, fetched when it is not here and may be fetched.

    None asks for $LLMCLI_MODEL, else the default; only the built-in default is ever replaced.
    """
    asked = model if model is not None else os.environ.get(VARIABLE) or None
    if asked is not None:
        return _asked(asked, progress, allow_fetch)
    try:
        return _asked(DEFAULT, progress, allow_fetch)
    except LlmcliError as error:
        path = embedded(FALLBACK)
        if path is None:
            raise
        notice = (
            f"{error.message}; using the small embedded {FALLBACK} instead "
            f"(run `llmcli pull {DEFAULT}` when there is a network, or give --model)"
        )
        return Resolved(path, FALLBACK, "embedded", notice)


def _asked(model: str, progress: Progress, allow_fetch: bool) -> Resolved:
    if not model.strip() or "\0" in model:
        raise UsageError(
            f"{printable(model)!r} is not a model",
            hint="give a folder, a catalogue name or a hub id",
        )
    found = _folder(model) or _named(model)
    if found:
        return found
    if model not in catalog() and not is_hub_id(model):
        raise _nothing(model)
    if not allow_fetch:
        raise AcquireError(
            f"{model} is not on this machine", hint=f"run `llmcli pull {model}` to fetch it"
        )
    return pull(model, progress=progress)


def _folder(model: str) -> Resolved | None:
    """`model` read as a path; None when it may still be a name."""
    path = _expanded(model)
    if is_checkpoint(path):
        return Resolved(path, path.resolve().name, "folder")
    if path.is_file():
        raise _is_file(path)
    if not _is_path(model):
        return None
    shown = printable(str(path))
    if not path.exists():
        raise AcquireError(f"{shown} does not exist", hint="give the folder of a checkpoint")
    raise CheckpointError(
        f"{shown} holds no config.json", hint="give the folder of a checkpoint in Hugging Face form"
    )


def _expanded(model: str) -> Path:
    try:
        path = Path(model).expanduser()
        path.exists()
    except (OSError, RuntimeError) as error:
        reason = printable(str(getattr(error, "strerror", None) or error))
        raise AcquireError(
            f"{printable(model)!r} cannot be looked up: {reason}",
            hint="give the folder of a checkpoint",
        ) from None
    return path


def _is_path(model: str) -> bool:
    separators = [os.sep, *([os.altsep] if os.altsep else [])]
    looks = model.startswith((".", "~")) or any(mark in model for mark in separators)
    return looks and not is_hub_id(model)


def _is_file(path: Path) -> LlmcliError:
    shown = printable(str(path))
    if path.suffix == ".gguf":
        hint = f"convert it first: llmcli convert {shown} OUT_DIR"
        return UsageError(f"{shown} is a GGUF file, not a checkpoint folder", hint=hint)
    hint = f"give the folder that holds it and its config.json: {printable(str(path.parent))}"
    return UsageError(f"{shown} is a file, not a checkpoint folder", hint=hint)


def _named(model: str) -> Resolved | None:
    if model not in catalog() and (_is_path(model) or model in (".", "..")):
        return None
    for folder in weights_folders():
        path = folder / model
        if is_checkpoint(path):
            _refuse_dangling(model, path)
            origin = read_origin(path)
            return Resolved(path, model, origin.text if origin else "folder")
    inside = embedded(model) if model in catalog() else None
    return Resolved(inside, model, "embedded") if inside else None


def _refuse_dangling(model: str, path: Path) -> None:
    gone = [file for file in path.glob("*.safetensors") if not file.exists()]
    if gone:
        raise CheckpointError(
            f"{printable(gone[0].name)} of {printable(model)} links to a file that is gone",
            hint=f"fetch it again: llmcli pull {printable(model)} --force",
        )


def _nothing(model: str) -> AcquireError:
    error = unknown(model)
    if Path(model).is_dir():
        return AcquireError(f"the folder {printable(model)} holds no config.json", hint=error.hint)
    return error
