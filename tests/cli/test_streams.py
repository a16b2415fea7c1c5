"""Closed, full and broken streams; real processes, since descriptors are what matters."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.drive import Child
from tests.puppet import make_puppet


@pytest.fixture
def model(tmp_path: Path) -> str:
    return str(make_puppet(tmp_path / "model", ["Hel", "lo", " wor", "ld"]).folder)


def test_x(model: str) -> None:
    with Child(["generate", "-m", model, "hi"]) as child:
        assert child.wait() == 0
        assert child.seen == b"Hello world\r\n"
        assert child.terminal_restored
