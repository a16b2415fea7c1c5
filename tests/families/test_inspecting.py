"""inspect-layers over every family's files: sound ones have no findings, every name is shown."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmcli.checkpoint.directory import ModelDir
from llmcli.cli.inspecting.asked import Asked
from llmcli.cli.inspecting.subject import PromptSource, Subject
from llmcli.cli.inspecting.table import VIEWS, load_drawing
from llmcli.cli.options import Loading, Prompting
from llmcli.insight.check import check
from llmcli.insight.facts import Facts, Source, folder_facts
from llmcli.insight.tree import Node, build_tree
from tests.families.conftest import MakeOracle
from tests.families.rows import ROWS
from tests.oracle import Row

EVERY_ROW = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
STORIES = Path(__file__).parents[2] / "weights" / "stories260k"


def _facts(oracle: MakeOracle, row: Row) -> tuple[Facts, ModelDir]:
    directory = ModelDir.open(oracle(row).folder)
    return folder_facts(row.name, directory, Source()), directory


def _stored(node: Node) -> Iterator[str]:
    yield from (one.name for weight in node.weights for one in weight.stored)
    for child in node.children:
        yield from _stored(child)


@EVERY_ROW
def test_a_sound_file_has_only_what_it_lacks(oracle: MakeOracle, row: Row) -> None:
    facts, directory = _facts(oracle, row)
    found = check(facts, directory, values=True)
    bad = [one for one in found.findings if one.level == "error"]
    # The rows have no tokenizer.
    assert [one.about for one in bad] == ["tokenizer"]


@EVERY_ROW
def test_the_tree_shows_every_stored_name_that_is_used(oracle: MakeOracle, row: Row) -> None:
    facts, _ = _facts(oracle, row)
    assert facts.plan is not None
    shown = set(_stored(build_tree(facts).root))
    patterns = [
        re.compile(re.escape(name).replace(r"\{i\}", r"\d+").replace(r"\{e\}", r"\d+"))
        for name in shown
    ]
    for item in facts.plan.assignments:
        assert any(pattern.fullmatch(item.source.name) for pattern in patterns), item.source.name


@EVERY_ROW
def test_every_view_without_a_prompt_draws(
    oracle: MakeOracle, row: Row, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from llmcli.acquire.resolve import Resolved
    from llmcli.insight import machine

    # Measured once elsewhere; here it would only take time.
    monkeypatch.setattr(machine, "read_bandwidth", lambda *_, **__: 1e10)
    facts, directory = _facts(oracle, row)
    folder = tmp_path / "copy"
    folder.mkdir()
    for file in directory.path.iterdir():
        (folder / file.name).symlink_to(file)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(STORIES / name, folder / name)
    source = PromptSource(prompting=Prompting())
    subject = Subject(facts, Loading(), source, Resolved(folder, row.name, "folder"))
    for view in VIEWS:
        if view.needs in ("config", "headers"):
            drawing = load_drawing(view)
            found = drawing.compute(subject, Asked())
            assert drawing.lines(found, None), view.name
            assert drawing.lines(found, 60), view.name
