"""docs/families.md is what the registry renders.

`python -m tests.families.test_table` writes it anew.
"""

from __future__ import annotations

from pathlib import Path

from llmcli.families import supported
from llmcli.families.table import render

PAGE = Path(__file__).parents[2] / "docs" / "families.md"


def test_the_page_is_what_the_registry_renders() -> None:
    assert PAGE.read_text() == render(), "write it anew: python -m tests.families.test_table"


def test_every_model_type_is_on_it() -> None:
    assert all(f"`{kind}`" in render() for kind in supported())


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(render())
