"""The hub source against a small hub on loopback: pinning, resuming, hashes, faults."""

from __future__ import annotations

import errno
import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import huggingface_hub
import numpy as np
import pytest
from huggingface_hub import constants
from safetensors.numpy import save

from llmcli.acquire.disk import DiskFullError
from llmcli.acquire.hub import fetch_from_hub
from llmcli.acquire.origin import read_origin
from llmcli.acquire.progress import Silent
from llmcli.acquire.pull import pull
from llmcli.acquire.resolve import resolve
from llmcli.errors import AcquireError

from .hub_server import COMMIT, Hub, Repo, serving
from .recorder import Recorder

WEIGHTS = save({"w": np.arange(400_000, dtype=np.float32)})
CONFIG = json.dumps({"model_type": "llama"}).encode()
FILES = {
    "config.json": CONFIG,
    "model.safetensors": WEIGHTS,
    "tokenizer.json": b"{}",
    "chat_template.jinja": b"{{ messages }}",
    "README.md": b"# no",
    "pytorch_model.bin": b"pickle",
    "onnx/config.json": b"{}",
}
WANTED = {"config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja"}


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    for name in (
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "ALL_PROXY",
        "http_proxy",
        "https_proxy",
        "all_proxy",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LLMCLI_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("LLMCLI_MODEL", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr("huggingface_hub.file_download.constants.DOWNLOAD_CHUNK_SIZE", 1 << 16)
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda _: None)
    with serving() as state:
        monkeypatch.setattr(constants, "ENDPOINT", state.url)
        template = state.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        state.repos["me/tiny"] = Repo(dict(FILES))
        yield state
    huggingface_hub.close_session()


def test_only_the_wanted_files_of_one_commit(hub: Hub, tmp_path: Path):
    told = Recorder()
    made = pull("me/tiny", progress=told)
    assert made.path == tmp_path / "home/weights/me/tiny"
    assert {path.name for path in made.path.iterdir()} == WANTED | {"origin.json"}
    for name in WANTED:
        assert (made.path / name).read_bytes() == FILES[name]
    origin = read_origin(made.path)
    assert origin is not None
    assert (origin.kind, origin.id, origin.revision) == ("hub", "me/tiny", COMMIT)
    assert origin.requested_revision == "main"
    assert origin.licence == "apache-2.0"
    assert set(origin.sha256) == {"model.safetensors"}
    assert all(COMMIT in line for line in hub.log if "/resolve/" in line)
    [(_, total, done)] = told.bars
    assert total == done == sum(len(FILES[name]) for name in WANTED)
    assert told.steps > 20


def test_bytes_are_shared_with_the_cache_but_small_files_are_not(hub: Hub, tmp_path: Path):
    made = pull("me/tiny", progress=Silent())
    [blob] = [b for b in (tmp_path / "cache").rglob("blobs/*") if b.stat().st_size > 10**6]
    assert blob.samefile(made.path / "model.safetensors")
    (made.path / "config.json").write_text("edited")
    assert CONFIG in [b.read_bytes() for b in (tmp_path / "cache").rglob("blobs/*")]


def test_second_pull_and_resolve_ask_nobody(hub: Hub):
    first = pull("me/tiny", progress=Silent())
    hub.log.clear()
    again = pull("me/tiny", progress=Silent())
    assert again.path == first.path
    assert "already here" in (again.notice or "")
    assert resolve("me/tiny", progress=Silent()).path == first.path
    assert hub.log == []


def test_force_and_another_revision_fetch_again(hub: Hub):
    pull("me/tiny", progress=Silent())
    hub.repos["me/tiny"].files["config.json"] = b'{"model_type": "gpt2"}'
    hub.repos["me/tiny"].revisions += ("v2",)
    hub.log.clear()
    made = pull("me/tiny", progress=Silent(), revision=COMMIT)
    assert hub.log == []
    made = pull("me/tiny", progress=Silent(), revision="v2")
    assert hub.log != []
    origin = read_origin(made.path)
    assert origin is not None
    assert origin.requested_revision == "v2"
    hub.log.clear()
    pull("me/tiny", progress=Silent(), force=True)
    assert hub.log != []
    assert {path.name for path in made.path.parent.iterdir()} == {"tiny", ".tiny.lock"}


def test_cut_connection_is_resumed(hub: Hub):
    hub.cuts["model.safetensors"] = 2
    told = Recorder()
    made = pull("me/tiny", progress=told)
    assert (made.path / "model.safetensors").read_bytes() == WEIGHTS
    assert sum("bytes=" in line for line in hub.log) >= 1
    [(_, total, done)] = told.bars
    assert done == total


def test_cut_connection_without_ranges_restarts(hub: Hub):
    hub.ranges = False
    hub.cuts["model.safetensors"] = 1
    told = Recorder()
    made = pull("me/tiny", progress=told)
    assert (made.path / "model.safetensors").read_bytes() == WEIGHTS
    [(_, total, done)] = told.bars
    assert done == total


def test_connection_that_always_breaks_is_one_line_and_the_next_pull_is_clean(hub: Hub):
    hub.cuts["model.safetensors"] = 1000
    with pytest.raises(AcquireError, match="me/tiny") as caught:
        pull("me/tiny", progress=Recorder())
    assert caught.value.message.isprintable()
    assert not Path("home/weights/me/tiny").exists()
    hub.cuts.clear()
    made = pull("me/tiny", progress=Recorder())
    assert (made.path / "model.safetensors").read_bytes() == WEIGHTS


def test_wrong_hash_once_is_fetched_again(hub: Hub):
    hub.lies["model.safetensors"] = 1
    told = Recorder()
    made = pull("me/tiny", progress=told)
    assert (made.path / "model.safetensors").read_bytes() == WEIGHTS
    assert any("sha256" in line for line in told.notices)


def test_wrong_hash_twice_is_refused_with_both_hashes(hub: Hub, tmp_path: Path):
    hub.lies["model.safetensors"] = 2
    with pytest.raises(AcquireError, match=r"model\.safetensors.*sha256 \w{64}.*lists \w{64}"):
        pull("me/tiny", progress=Recorder())
    assert not (tmp_path / "home/weights/me/tiny").exists()
    assert not [b for b in (tmp_path / "cache").rglob("blobs/*") if b.stat().st_size > 10**6]
    assert pull("me/tiny", progress=Recorder()).path.is_dir()


def test_sharded_weights_and_a_second_copy_of_them(hub: Hub):
    shards = {f"model-0000{i}-of-00002.safetensors": WEIGHTS[: 1000 * i] for i in (1, 2)}
    files = {"config.json": CONFIG, "model.safetensors.index.json": b"{}", **shards}
    hub.repos["me/big"] = Repo(files | {"consolidated.safetensors": WEIGHTS})
    made = pull("me/big", progress=Silent())
    assert {path.name for path in made.path.iterdir()} == {*files, "origin.json"}


@pytest.mark.parametrize(
    ("change", "match", "hint"),
    [
        (lambda hub: hub.repos.clear(), "not on the hub, or is private", "spelling"),
        (lambda hub: setattr(hub.repos["me/tiny"], "gated", True), "is gated", "HF_TOKEN"),
        (lambda hub: hub.repos["me/tiny"].files.pop("model.safetensors"), "no .saf.*bin", "pickle"),
        (lambda hub: hub.repos["me/tiny"].files.pop("config.json"), "no config.json", "form"),
        (lambda hub: setattr(hub, "status", 418), "HTTP 418", "later"),
    ],
)
def test_what_the_hub_refuses_is_one_line(hub: Hub, change, match: str, hint: str):
    change(hub)
    with pytest.raises(AcquireError, match=match) as caught:
        pull("me/tiny", progress=Silent())
    assert "\n" not in caught.value.message
    assert hint in caught.value.hint
    assert not Path("home/weights/me/tiny").exists()


def test_unknown_revision(hub: Hub):
    with pytest.raises(AcquireError, match="me/tiny has no revision v9"):
        pull("me/tiny", progress=Silent(), revision="v9")


def test_offline_takes_only_what_the_cache_has(hub: Hub, monkeypatch: pytest.MonkeyPatch):
    pull("me/tiny", progress=Silent(), revision=COMMIT)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    hub.log.clear()
    made = pull("me/tiny", progress=Silent(), revision=COMMIT, force=True)
    assert (made.path / "model.safetensors").read_bytes() == WEIGHTS
    with pytest.raises(AcquireError, match=r"HF_HUB_OFFLINE is set.*me/other"):
        pull("me/other", progress=Silent())
    assert hub.log == []


def test_damaged_cache_is_refused_offline(hub: Hub, tmp_path: Path, monkeypatch):
    pull("me/tiny", progress=Silent())
    [blob] = [b for b in (tmp_path / "cache").rglob("blobs/*") if b.stat().st_size > 10**6]
    blob.unlink()
    blob.write_bytes(WEIGHTS[:-1] + b"!")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(AcquireError, match="cache: has sha256"):
        fetch_from_hub("me/tiny", COMMIT, tmp_path / "out", progress=Silent())


def test_full_disk_is_one_line(hub: Hub, monkeypatch: pytest.MonkeyPatch):
    def full(*args: object, **kwargs: object) -> str:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", full)
    with pytest.raises(DiskFullError, match=r"cache is full: [\d,]+ bytes are needed, .* free"):
        pull("me/tiny", progress=Recorder())
    assert {path.name for path in Path("home/weights/me").iterdir()} == {".tiny.lock"}


def test_nobody_there_costs_little(hub: Hub, monkeypatch: pytest.MonkeyPatch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{free.getsockname()[1]}")
    begun = time.monotonic()
    with pytest.raises(AcquireError, match=r"cannot be reached \(127.0.0.1:\d+: Connection ref"):
        pull("me/tiny", progress=Silent())
    assert time.monotonic() - begun < 8


def test_server_that_takes_the_call_and_is_silent(hub: Hub, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("llmcli.acquire.hub._INFO_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{deaf.getsockname()[1]}")
        begun = time.monotonic()
        with pytest.raises(AcquireError, match="connection failed"):
            pull("me/tiny", progress=Silent())
        assert time.monotonic() - begun < 8
