"""Every test runs in an empty folder, with an empty home and no network."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.drive import Result, run_here

Invoke = Callable[..., Result]


@pytest.fixture(autouse=True)
def isolated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No setting or checkpoint of whoever runs the tests shows through."""
    for name in ("LLMCLI_MODEL", "NO_COLOR", "COLUMNS", "LINES", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LLMCLI_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)


@pytest.fixture
def invoke() -> Invoke:
    """`invoke("generate", ...)` in this process."""

    def call(*args: str, **how: object) -> Result:
        return run_here(args, **how)  # type: ignore[arg-type]

    return call
