"""What `--model` means: folders, names, ids, the default and its stand-in."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from llmcli.acquire import places
from llmcli.acquire import resolve as room
from llmcli.acquire.disk import disk_faults
from llmcli.acquire.places import embedded, home, installed
from llmcli.acquire.progress import Silent
from llmcli.acquire.pull import Resolved
from llmcli.acquire.resolve import resolve
from llmcli.errors import AcquireError, CheckpointError, LlmcliError, UsageError


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("LLMCLI_MODEL", raising=False)
    monkeypatch.setenv("LLMCLI_HOME", str(tmp_path / "home"))
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    return tmp_path / "cwd"


def checkpoint(folder: Path, config: str = '{"model_type": "llama"}') -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(config)
    return folder


def found(model: str | None) -> Path:
    return resolve(model, progress=Silent(), allow_fetch=False).path.resolve()


def test_order_of_the_search(here: Path):
    stories = embedded("stories260k")
    assert stories is not None
    assert found("stories260k") == stories.resolve()
    pulled = checkpoint(home() / "weights/stories260k")
    assert found("stories260k") == pulled
    beside = checkpoint(here / "weights/stories260k")
    assert found("stories260k") == beside
    folder = checkpoint(here / "stories260k")
    assert found("stories260k") == folder
    assert resolve("stories260k", progress=Silent()).source == "folder"


def test_folder_of_the_form_owner_name_wins_over_the_hub(here: Path):
    pulled = checkpoint(home() / "weights/me/tiny")
    assert found("me/tiny") == pulled
    assert found("me/tiny") == found(str(pulled))
    folder = checkpoint(here / "me/tiny")
    assert found("me/tiny") == folder


def test_folder_without_config_does_not_count(here: Path):
    (here / "stories260k").mkdir()
    assert found("stories260k") == (embedded("stories260k") or here).resolve()
    (here / "other").mkdir()
    with pytest.raises(AcquireError, match=r"folder other holds no config\.json"):
        found("other")
    with pytest.raises(CheckpointError, match=r"other holds no config\.json"):
        found("./other")


def test_home_and_dots_are_paths(here: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOME", str(here))
    folder = checkpoint(here / "m")
    assert found("~/m") == found("./m") == found("../cwd/m/") == folder
    monkeypatch.chdir(folder)
    assert found(".") == folder
    assert resolve(".", progress=Silent()).name == "m"


@pytest.mark.parametrize(
    "path",
    ["./no", "../no", "~/no", "/no/where", "a/b/c", "~nobody-here/x", "x" * 5000, "weights/"],
)
def test_path_that_does_not_exist_is_named(path: str):
    with pytest.raises(LlmcliError) as caught:
        found(path)
    assert caught.value.message.isprintable()
    assert len(caught.value.message) < 300


def test_files_are_refused_with_what_to_do(here: Path):
    (here / "m.gguf").write_bytes(b"GGUF")
    (here / "model.safetensors").write_bytes(b"")
    with pytest.raises(UsageError, match=r"m\.gguf is a GGUF file") as caught:
        found("m.gguf")
    assert "llmcli convert m.gguf" in caught.value.hint
    with pytest.raises(UsageError, match=r"model\.safetensors is a file") as caught:
        found("model.safetensors")
    assert "folder that holds it" in caught.value.hint


@pytest.mark.parametrize("name", ["[x]", "a\x1b[31mb", "?", "no such", "x\ny", "..", "[/red]"])
def test_odd_names_are_one_printable_line(name: str):
    with pytest.raises(LlmcliError) as caught:
        found(name)
    assert caught.value.message.isprintable()


@pytest.mark.parametrize("name", ["", "  ", "a\0b"])
def test_empty_names(name: str):
    with pytest.raises(UsageError):
        found(name)


def test_slip_of_the_pen_is_suggested():
    with pytest.raises(AcquireError) as caught:
        found("smolm2")
    assert "did you mean smollm2" in caught.value.hint
    with pytest.raises(AcquireError) as caught:
        found("zzzz")
    assert "smollm2" in caught.value.hint


def test_asked_for_and_not_here_is_never_replaced(monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(AcquireError, match="smollm2 is not on this machine") as caught:
        found("smollm2")
    assert "llmcli pull smollm2" in caught.value.hint
    monkeypatch.setenv("LLMCLI_MODEL", "smollm2")
    with pytest.raises(AcquireError, match="smollm2 is not on this machine"):
        found(None)


def test_default_is_replaced_with_one_line(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LLMCLI_MODEL", "")

    def nothing(name: str, *, progress: object) -> Resolved:
        raise AcquireError(f"{name} cannot be fetched: no network")

    monkeypatch.setattr(room, "pull", nothing)
    made = resolve(None, progress=Silent())
    assert (made.name, made.source) == ("stories260k", "embedded")
    assert made.notice is not None
    assert made.notice.startswith("smollm2 cannot be fetched: no network; using")
    assert "llmcli pull smollm2" in made.notice
    assert "\n" not in made.notice
    checkpoint(home() / "weights/smollm2")
    assert resolve(None, progress=Silent()).notice is None
    assert found(None) == home() / "weights/smollm2"


def test_variable_names_the_model(here: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LLMCLI_MODEL", "stories260k")
    assert found(None) == (embedded("stories260k") or here).resolve()


_OFFLINE = """
import socket, sys
from llmcli.acquire.progress import Silent
from llmcli.acquire.resolve import resolve
print(resolve(None, progress=Silent()))
"""


def test_offline_with_nothing_cached_falls_through_to_the_embedded(here: Path, monkeypatch):
    """The whole way in a fresh process: hub offline, index dead, stand-in within seconds."""
    for name in ("PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS"):
        monkeypatch.delenv(name, raising=False)
    settings = {"PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": "http://127.0.0.1:9/simple"}
    for name, value in {"HF_HUB_OFFLINE": "1", "HF_HOME": str(here / "hf"), **settings}.items():
        monkeypatch.setenv(name, value)
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", _OFFLINE], capture_output=True, text=True, check=True, timeout=60
    )
    assert time.monotonic() - begun < 25
    assert "name='stories260k'" in done.stdout
    assert "HF_HUB_OFFLINE is set" in done.stdout
    assert "127.0.0.1:9: Connection refused" in done.stdout
    assert done.stderr == ""


def test_import_is_cheap():
    rooms = "llmcli.acquire, llmcli.acquire.resolve, llmcli.acquire.places"
    code = f"import {rooms}, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"torch", "numpy", "gguf", "huggingface_hub", "tokenizers", "safetensors", "filelock"}
    assert heavy.isdisjoint(done.stdout.split())


def test_installed_lists_what_is_here(here: Path):
    stories = next(item for item in installed() if item.name == "stories260k")
    assert stories.source == "embedded"
    assert stories.model_type == "llama"
    assert stories.parameters == 260032
    assert stories.bytes > 10**6
    assert stories.first
    assert stories.problem is None


def test_installed_marks_the_one_that_is_used(here: Path):
    stories = embedded("stories260k") or here
    for folder in (home() / "weights", here / "weights"):
        folder.mkdir(parents=True)
        (folder / "stories260k").mkdir()
        for file in stories.iterdir():
            (folder / "stories260k" / file.name).write_bytes(file.read_bytes())
    items = [item for item in installed() if item.name == "stories260k"]
    assert [item.first for item in items] == [True, False, False]
    assert items[0].path == found("stories260k")


def test_installed_survives_broken_folders(here: Path):
    weights = here / "weights"
    checkpoint(weights / "not-json", "{")
    checkpoint(weights / "a-list", "[]")
    checkpoint(weights / "no-type", "{}")
    checkpoint(weights / "no-weights")
    (checkpoint(weights / "cut") / "model.safetensors").write_bytes(b"1234567")
    (checkpoint(weights / "gone") / "model.safetensors").symlink_to(here / "nowhere")
    (weights / "no-config").mkdir()
    (weights / "no-config/x.safetensors").write_bytes(b"")
    (weights / "empty").mkdir()
    (weights / ".x.partial").mkdir()
    (weights / "README.md").write_text("no")
    (checkpoint(weights / "od\x1b[31md") / "origin.json").write_text('["broken"]')
    checkpoint(weights / "me/inner")
    items = {item.name: item for item in installed() if item.source != "embedded"}
    assert set(items) == {
        "not-json", "a-list", "no-type", "no-weights", "cut", "gone", "no-config",
        "od\\x1b[31md", "me/inner",
    }  # fmt: skip
    for item in items.values():
        assert item.problem
        assert item.problem.isprintable()
        assert item.first == (item.name != "no-config")


def test_weights_that_link_nowhere_are_refused_with_what_to_do():
    folder = checkpoint(home() / "weights/me/tiny")
    (folder / "model.safetensors").symlink_to(folder / "nowhere")
    with pytest.raises(CheckpointError, match="links to a file that is gone") as caught:
        found("me/tiny")
    assert "llmcli pull me/tiny --force" in caught.value.hint


def test_home_follows_the_variable_else_the_platform(monkeypatch: pytest.MonkeyPatch, here: Path):
    assert home() == here.parent / "home"
    monkeypatch.delenv("LLMCLI_HOME")
    monkeypatch.setenv("XDG_DATA_HOME", str(here / "data"))
    if sys.platform == "linux":
        assert home() == here / "data/llmcli"


def test_packed_weights_win_over_the_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    package = tmp_path / "site/llmcli/acquire"
    package.mkdir(parents=True)
    monkeypatch.setattr(places, "__file__", str(package / "places.py"))
    assert embedded("stories260k") is None
    repository = checkpoint(tmp_path / "site/weights/stories260k")
    assert embedded("stories260k") == repository
    packed = checkpoint(tmp_path / "site/llmcli/_weights/stories260k")
    assert embedded("stories260k") == packed


@pytest.mark.parametrize("code", [errno.ENOENT, errno.ENAMETOOLONG, errno.EROFS])
def test_a_home_that_cannot_be_made_is_one_error(tmp_path: Path, code: int) -> None:
    """So that the default model can still be replaced by the embedded one."""
    with pytest.raises(AcquireError, match="cannot be written"), disk_faults(tmp_path):
        raise OSError(code, os.strerror(code), str(tmp_path))
