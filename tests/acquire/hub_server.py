"""A small model hub on loopback: listing, revisions, ranges, and faults on request."""

from __future__ import annotations

import hashlib
import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class Repo:
    """One repository; `lfs` names are listed with their sha256."""

    files: dict[str, bytes]
    licence: str = "apache-2.0"
    gated: bool = False
    revisions: tuple[str, ...] = ("main", COMMIT)

    def lfs(self, name: str) -> bool:
        return name.endswith((".safetensors", ".bin"))


@dataclass
class Hub:
    """The server's state, which a test may change at any time.

    `cuts` counts, by file, how many answers still break off half way; `lies` replaces a
    file's bytes by others of the same length.
    """

    repos: dict[str, Repo] = field(default_factory=dict)
    cuts: Counter[str] = field(default_factory=Counter)
    lies: Counter[str] = field(default_factory=Counter)
    status: int | None = None
    ranges: bool = True
    log: list[str] = field(default_factory=list)
    url: str = ""


@contextmanager
def serving() -> Iterator[Hub]:
    """Run a hub in a thread for as long as the block lasts."""
    hub = Hub()

    class Handler(_Handler):
        state = hub

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    state: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *args: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self.answer(body=False)

    def do_GET(self) -> None:
        self.answer(body=True)

    def answer(self, *, body: bool) -> None:
        hub, path = self.state, unquote(urlsplit(self.path).path)
        hub.log.append(f"{self.command} {path} {self.headers.get('Range', '')}".strip())
        if hub.status is not None:
            return self.reply(hub.status, b"{}", {}, body=body)
        if path.startswith("/api/models/"):
            return self.listing(path.removeprefix("/api/models/").split("/"), body=body)
        owner, name, _, revision, file = path.removeprefix("/").split("/", 4)
        repo = hub.repos.get(f"{owner}/{name}")
        if repo is None or file not in repo.files or revision not in repo.revisions:
            code = "RepoNotFound" if repo is None else "EntryNotFound"
            return self.reply(404, b"", {"X-Error-Code": code}, body=body)
        return self.file(repo, file, body=body)

    def listing(self, parts: list[str], *, body: bool) -> None:
        repo = self.state.repos.get("/".join(parts[:2]))
        if repo is None:
            return self.reply(401, b"{}", {"X-Error-Code": "RepoNotFound"}, body=body)
        if repo.gated:
            headers = {"X-Error-Code": "GatedRepo", "X-Error-Message": "gated"}
            return self.reply(403, b"{}", headers, body=body)
        if len(parts) > 3 and parts[3] not in repo.revisions:
            return self.reply(404, b"{}", {"X-Error-Code": "RevisionNotFound"}, body=body)
        siblings = []
        for name, content in repo.files.items():
            item: dict[str, Any] = {"rfilename": name, "size": len(content), "blobId": "0" * 40}
            if repo.lfs(name):
                digest = hashlib.sha256(content).hexdigest()
                item["lfs"] = {"sha256": digest, "size": len(content), "pointerSize": 130}
            siblings.append(item)
        info = {
            "id": "/".join(parts[:2]),
            "modelId": "/".join(parts[:2]),
            "sha": COMMIT,
            "siblings": siblings,
            "cardData": {"license": repo.licence},
        }
        return self.reply(
            200, json.dumps(info).encode(), {"Content-Type": "application/json"}, body=body
        )

    def file(self, repo: Repo, name: str, *, body: bool) -> None:
        hub, content = self.state, repo.files[name]
        kind = hashlib.sha256 if repo.lfs(name) else hashlib.sha1
        headers = {"ETag": f'"{kind(content).hexdigest()}"', "X-Repo-Commit": COMMIT}
        if hub.ranges:
            headers["Accept-Ranges"] = "bytes"
        if repo.lfs(name):
            headers["X-Linked-Size"] = str(len(content))
            headers["X-Linked-ETag"] = headers["ETag"]
        if not body:
            return self.reply(200, content, headers, body=False)
        if hub.lies[name] > 0:
            hub.lies[name] -= 1
            content = content[:-4] + b"lies"
        wanted, status = self.headers.get("Range"), 200
        if wanted and hub.ranges and wanted != "bytes=0-":
            first = int(wanted.removeprefix("bytes=").split("-")[0])
            headers["Content-Range"] = f"bytes {first}-{len(content) - 1}/{len(content)}"
            content, status = content[first:], 206
        return self.reply(status, content, headers, body=True, name=name)

    def reply(
        self, status: int, content: bytes, headers: dict[str, str], *, body: bool, name: str = ""
    ) -> None:
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if not body:
            return
        if self.state.cuts[name] > 0:
            self.state.cuts[name] -= 1
            self.wfile.write(content[: len(content) // 2])
            self.wfile.flush()
            self.close_connection = True
            self.connection.shutdown(2)
            return
        self.wfile.write(content)
