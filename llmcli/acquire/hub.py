"""Checkpoints from a model hub, through huggingface_hub: its cache, its token, its settings.

Only safetensors, JSON, templates and tokenizers are fetched, of one commit; a pickle is never
loaded. Must not know catalogue names or where checkpoints are kept.
"""

from __future__ import annotations

import fnmatch
import logging
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from llmcli.acquire.disk import (
    CHUNK,
    disk_faults,
    is_full,
    remove,
    require_room,
    sha256_of,
    share,
)
from llmcli.acquire.hub_errors import explain
from llmcli.acquire.hub_progress import bar_class
from llmcli.acquire.origin import Origin
from llmcli.acquire.progress import Progress
from llmcli.acquire.reach import unreachable
from llmcli.checkpoint.escape import printable, shortlist
from llmcli.errors import AcquireError

PATTERNS = ("*.safetensors", "*.json", "*.jinja", "tokenizer*")
_INFO_SECONDS = 4.0
_CONFIG = "config.json"


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """One file of a repository; `sha256` is None for a small file that git itself keeps."""

    name: str
    size: int | None
    sha256: str | None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One commit of a repository and the files wanted of it."""

    repo: str
    commit: str
    licence: str
    files: Sequence[RemoteFile]


def fetch_from_hub(repo: str, revision: str, out_dir: Path, *, progress: Progress) -> Origin:
    """Put the checkpoint `repo` at `revision` into `out_dir`; the cache's bytes are shared."""
    from huggingface_hub import constants

    with _explained(repo, revision):
        if constants.is_offline_mode():
            snapshot, paths = _cached(repo, revision)
        else:
            snapshot = _look_up(repo, revision)
            paths = _download(snapshot, progress)
    with disk_faults(out_dir, sum(path.stat().st_size for path in paths.values())):
        _lay_out(paths, out_dir)
    return Origin(
        kind="hub",
        id=repo,
        revision=snapshot.commit,
        requested_revision=revision,
        licence=snapshot.licence,
        sha256={file.name: file.sha256 for file in snapshot.files if file.sha256},
    )


@contextmanager
def _explained(repo: str, revision: str) -> Iterator[None]:
    # The library raises its own errors, its HTTP client's and plain OSErrors, by version;
    # and it logs each retry to stderr, where the caller is drawing.
    logger = logging.getLogger("huggingface_hub")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    except AcquireError:
        raise
    except Exception as error:
        if is_full(error):
            raise
        raise explain(error, repo, revision) from error
    finally:
        logger.setLevel(level)


def _look_up(repo: str, revision: str) -> Snapshot:
    from huggingface_hub import HfApi, constants

    reason = unreachable([constants.ENDPOINT])
    if reason:
        raise AcquireError(f"cannot be reached ({reason})")
    info = HfApi(endpoint=constants.ENDPOINT).model_info(
        repo, revision=revision, files_metadata=True, timeout=_INFO_SECONDS
    )
    listed = [
        RemoteFile(item.rfilename, item.size, item.lfs.sha256 if item.lfs else None)
        for item in info.siblings or []
    ]
    licence = info.card_data.get("license") if info.card_data else None
    files = _wanted({file.name: file for file in listed}, repo)
    return Snapshot(repo, info.sha or revision, str(licence or ""), files)


def _wanted(listed: Mapping[str, RemoteFile], repo: str) -> list[RemoteFile]:
    """The files of the repository's root that a checkpoint needs."""
    names = [
        name
        for name in listed
        if "/" not in name and any(fnmatch.fnmatchcase(name, pattern) for pattern in PATTERNS)
    ]
    weights = [name for name in names if name.endswith(".safetensors")]
    if not weights:
        pickles = [name for name in listed if name.endswith((".bin", ".pt", ".pth"))]
        raise AcquireError(
            f"{printable(repo)} holds no .safetensors file"
            + (f", only {shortlist(pickles, 2)}" if pickles else ""),
            hint="pickled weights can run code and are never loaded; look for a converted one",
        )
    if _CONFIG not in names:
        raise AcquireError(
            f"{printable(repo)} holds no {_CONFIG}", hint="it is not a model in Hugging Face form"
        )
    # Some repositories carry the same weights twice, under their first maker's names.
    standard = [name for name in weights if fnmatch.fnmatchcase(name, "model*.safetensors")]
    double = set(weights) - set(standard) if standard else set()
    return [listed[name] for name in names if name not in double]


def _download(snapshot: Snapshot, progress: Progress) -> dict[str, Path]:
    from huggingface_hub import constants, try_to_load_from_cache

    def here(file: RemoteFile) -> bool:
        found = try_to_load_from_cache(snapshot.repo, file.name, revision=snapshot.commit)
        return isinstance(found, str)

    missing = sum(file.size or 0 for file in snapshot.files if not here(file))
    require_room(Path(constants.HF_HUB_CACHE), missing)
    progress.start(f"fetching {printable(snapshot.repo)}", missing)
    try:
        with disk_faults(Path(constants.HF_HUB_CACHE), missing):
            paths = {file.name: _get(snapshot, file, progress) for file in snapshot.files}
    finally:
        progress.finish()
    return {
        file.name: _proved(snapshot, file, paths[file.name], progress) for file in snapshot.files
    }


def _get(snapshot: Snapshot, file: RemoteFile, progress: Progress) -> Path:
    from huggingface_hub import constants, hf_hub_download

    # One file after the other, in this thread: Ctrl-C then stops at once.
    return Path(
        hf_hub_download(
            snapshot.repo,
            file.name,
            revision=snapshot.commit,
            endpoint=constants.ENDPOINT,
            tqdm_class=bar_class(progress),
        )
    )


def _proved(snapshot: Snapshot, file: RemoteFile, path: Path, progress: Progress) -> Path:
    """`path` when its bytes are what the hub lists; fetched once more when they are not."""
    wrong = _fault(file, path)
    if wrong is None:
        return path
    _forget(path)
    progress.notice(f"{printable(file.name)}: {wrong}; fetching it again")
    progress.start(f"fetching {printable(file.name)}", file.size)
    try:
        path = _get(snapshot, file, progress)
    finally:
        progress.finish()
    wrong = _fault(file, path)
    if wrong is None:
        return path
    _forget(path)
    raise AcquireError(
        f"{printable(file.name)} of {printable(snapshot.repo)}: {wrong}",
        hint="the server or something on the way alters the file; try another network or revision",
    )


def _fault(file: RemoteFile, path: Path) -> str | None:
    size = path.stat().st_size
    if file.size is not None and size != file.size:
        return f"has {size:,} bytes, the hub lists {file.size:,}"
    if file.sha256 is None:
        return None
    found = sha256_of(path)
    return None if found == file.sha256 else f"has sha256 {found}, the hub lists {file.sha256}"


def _forget(path: Path) -> None:
    """Drop a file from the hub's cache, its name and its bytes."""
    blob = path.resolve()
    remove(path)
    remove(blob)


def _cached(repo: str, revision: str) -> tuple[Snapshot, dict[str, Path]]:
    from huggingface_hub import snapshot_download

    folder = Path(
        snapshot_download(
            repo, revision=revision, local_files_only=True, allow_patterns=list(PATTERNS)
        )
    )
    listed = {
        path.name: RemoteFile(path.name, path.stat().st_size, _blob_hash(path))
        for path in folder.iterdir()
        if path.is_file()
    }
    files = _wanted(listed, repo)
    paths = {file.name: folder / file.name for file in files}
    for file in files:
        if wrong := _fault(file, paths[file.name]):
            raise AcquireError(f"{printable(file.name)} in the hub's cache: {wrong}")
    return Snapshot(repo, folder.name, "", files), paths


def _blob_hash(path: Path) -> str | None:
    # The cache names a large file's bytes by their sha256, a small one's by a git hash.
    name = path.resolve().name
    return name if len(name) == 64 and path.is_symlink() else None


def _lay_out(paths: Mapping[str, Path], out_dir: Path) -> None:
    out_dir.mkdir(parents=True, exist_ok=True)
    for name, path in paths.items():
        # Small files are copied: editing a config here must not change the hub's cache.
        if name.endswith(".safetensors") or path.stat().st_size > 64 * CHUNK:
            share(path, out_dir / name)
        else:
            shutil.copyfile(path, out_dir / name)
