"""The table of views, and what the command refuses before anything is looked at."""

from __future__ import annotations

import pytest

from llmcli.cli.inspecting.asked import Asked, readable_by
from llmcli.cli.inspecting.drawing import Drawing
from llmcli.cli.inspecting.table import VIEWS, View, load_drawing
from llmcli.cli.options import Ending, Loading, Prompting
from llmcli.cli.options.decoding import Decoding
from tests.cli.conftest import Invoke


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.name)
def test_every_row_has_its_drawing(view: View) -> None:
    assert isinstance(load_drawing(view), Drawing)
    known = {"prompt", "file", "kv_cache"}
    for bundle in (Asked, Decoding, Loading, Prompting, Ending):
        known |= set(bundle.__dataclass_fields__)
    assert readable_by(view) <= known


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["--view", "sumary"], "did you mean summary?"),
        (["--view", "SUMMARY"], "did you mean summary?"),
        (["--view", "Atention"], "did you mean attention?"),
        (["--view", "\x1b[2J"], "there is no view '\\x1b[2J'"),
        (["--layer", "1"], "view summary does not read --layer"),
        (["--device", "cpu"], "view summary does not read --device"),
        (["--raw"], "view summary does not read --raw"),
        (["hello"], "view summary does not read a prompt"),
        (["--preset", "gpt2", "-m", "stories260k"], "--preset and --model name two things"),
        (["--preset", "gpt3"], "did you mean gpt3-175b?"),
        (["--config", "."], "--config . is a folder"),
        (["--html", "nowhere/page.html"], "--html nowhere/page.html: there is no folder nowhere"),
        (["--svg", "a.svg"], "view summary has no picture"),
        (["--svg", "."], "--svg . is a folder"),
    ],
)
def test_refusals(invoke: Invoke, args: list[str], told: str) -> None:
    done = invoke("inspect-layers", *args)
    assert done.code == 2
    assert told in done.err
    assert done.out == ""
