"""pull, models, convert: what they print where, and how progress is told."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from llmcli.cli.progress import FetchProgress
from tests.acquire import hub_server
from tests.acquire.hub_server import Repo
from tests.cli.conftest import Invoke
from tests.cli.drive import Child, Result, run_here
from tests.puppet import make_puppet


@pytest.mark.parametrize("terminal", [True, False])
def test_pull_prints_the_folder(tmp_path: Path, terminal: bool) -> None:
    made = make_puppet(tmp_path / "model", ["one"]).folder
    where = "terminal" if terminal else "pipe"
    with hub_server.serving() as hub:
        hub.repos["own/er"] = Repo({file.name: file.read_bytes() for file in made.iterdir()})
        env = {
            "HF_ENDPOINT": hub.url,
            "HF_HUB_OFFLINE": "0",
            "HF_HUB_DISABLE_XET": "1",
            "HF_HOME": str(tmp_path / "hf"),
            "NO_PROXY": "*",
        }
        for again in (False, True):
            with Child(["pull", "own/er"], stdout="pipe", stderr=where, env=env) as child:
                assert child.wait() == 0, child.seen
                folder = tmp_path / "home" / "weights" / "own" / "er"
                assert child.out.decode() == f"{folder}\n"
                assert child.terminal_restored
                told = child.seen if terminal else child.err
                assert (b"already here" in told) == again
                if not terminal:
                    assert b"\x1b" not in told


def test_pull_of_what_travels_with_the_program(invoke: Invoke) -> None:
    result = invoke("pull", "stories260k")
    assert (result.code, result.err) == (0, "stories260k travels with llmcli\n")
    assert result.out.endswith("stories260k\n")


def test_convert_names_what_it_cannot_read(invoke: Invoke) -> None:
    Path("x.gguf").write_bytes(b"nothing like it")
    for args, word in ((["x.gguf", "out"], "x.gguf"), (["nowhere", "out"], "nowhere")):
        result = invoke("convert", *args)
        assert (result.code, result.out) == (1, "")
        assert result.err.startswith(f"error: {word}")
        assert len(result.err.splitlines()) == 3
    assert not Path("out").exists()


def test_models_as_json(invoke: Invoke) -> None:
    result = invoke("models", "--json")
    assert result.err == ""
    assert len(result.out.splitlines()) == 1
    (row,) = json.loads(result.out)
    assert (row["name"], row["family"], row["source"]) == ("stories260k", "llama", "embedded")
    assert row["parameters"] == 260_032
    assert row["problem"] is None


def fetching(monkeypatch: pytest.MonkeyPatch, *, terminal: bool) -> Result:
    """A fetch told by FetchProgress, within a command."""

    def pull(*_: object, progress: FetchProgress, **__: object) -> None:
        progress.start("fetching [red]x[/red] \x1b[31m", 2_000_000)
        worker = threading.Thread(target=progress.advance, args=(1_000_000,))
        worker.start()
        worker.join()
        progress.notice("half of [it] is \x07 here, says :smile: " + "long " * 40)
        progress.advance(1_000_000)
        progress.start("second", None)
        progress.finish()
        progress.finish()
        raise KeyboardInterrupt

    monkeypatch.setattr("llmcli.acquire.pull.pull", pull)
    return run_here(["pull", "own/er"], errors_terminal=terminal)


def test_progress_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    result = fetching(monkeypatch, terminal=True)
    assert (result.code, result.out) == (130, "")
    assert "fetching [red]x[/red] ␛[31m" in result.err
    assert "half of [it] is ␇ here, says :smile: " + "long " * 40 + "\n" in result.err
    assert result.err.rfind("\x1b[?25h") > result.err.rfind("\x1b[?25l") > -1


def test_progress_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    result = fetching(monkeypatch, terminal=False)
    lines = result.err.splitlines()
    assert lines[0] == "fetching [red]x[/red] ␛[31m (2 MB)"
    assert lines[1].startswith("half of [it] is ␇ here")
    assert lines[2:] == ["second"]
