"""docs/cli.md is what the commands declare."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmcli.cli.commands import command_names
from llmcli.cli.reference import render

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"


@pytest.mark.parametrize("columns", ["20", "80", "300"])
def test_the_page_is_up_to_date(monkeypatch: pytest.MonkeyPatch, columns: str) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    told = "run `python -m llmcli.cli.reference > docs/cli.md`"
    assert PAGE.read_text(encoding="utf-8") == render(), told


def test_the_page_is_whole() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for name in command_names():
        assert f"## `llmcli {name}`" in page
    for word in ("LLMCLI_MODEL", "LLMCLI_HOME", "HF_ENDPOINT", "HF_HUB_OFFLINE", "NO_COLOR"):
        assert f"| {word} |" in page
    for code in (0, 1, 2, 130, 141):
        assert f"| {code} |" in page
