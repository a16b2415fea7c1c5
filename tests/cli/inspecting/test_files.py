"""Pages and pictures: well-formed, self-contained, escaped, written whole or not at all."""

from __future__ import annotations

import os
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from llmcli import whole_file
from llmcli.cli.columns import Flow
from llmcli.cli.inspecting.svg import bars, heat_map, lines, page, stacked
from llmcli.cli.inspecting.table import VIEWS, load_drawing
from tests.cli.conftest import Invoke

ODD = "<b>&\"'\x1b[2J\n\x00\ufffe"
DRAWN = [
    view.name
    for view in VIEWS
    if view.needs == "config" and load_drawing(view).pictures is not None
]


def _pictures() -> list[str]:
    heat = heat_map(ODD, [[0.5, None], [-1.0, 0.0]], rows=[ODD, "b"], columns=["c", ODD])
    row = bars(ODD, [(ODD, 3.0, ODD), ("x", 0.0, "none")])
    plot = lines(ODD, [(ODD, [(0, 1), (2, 3)]), ("empty", [])], x=ODD, y=ODD)
    return [one.document() for one in (heat, row, plot, stacked([heat, row, plot]))]


@pytest.mark.parametrize("text", _pictures())
def test_pictures_are_xml_and_escape_everything(text: str) -> None:
    root = ElementTree.fromstring(text.encode())
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert not [one for one in root.iter() if one.tag.endswith("}b")]
    assert "<b>&\"'\\x1b[2J\\n\\x00" in "".join(root.itertext())


def test_empty_pictures_can_be_drawn() -> None:
    for picture in (heat_map("", [], rows=[], columns=[]), bars("", []), lines("", [], x="", y="")):
        ElementTree.fromstring(picture.document().encode())


def test_pages_escape_everything_and_fetch_nothing() -> None:
    text = page(ODD, [(ODD, ODD, [bars(ODD, [(ODD, 1.0, ODD)])], [ODD, Flow("<pre>", 2)])])
    assert "<b>" not in text
    assert "\x1b" not in text
    assert text.count("<pre>") == 1
    assert not re.search(r"<script|src=|href=|@import|url\(", text)


def test_only_words_are_broken_on_a_page() -> None:
    text = page("", [("", "", [], ["a  b", Flow("many words", 3), Flow(""), Flow("x\ny")])])
    flow = '<span class="flow"'
    hanging = f'{flow} style="padding-left:3ch;text-indent:-3ch">many words</span>'
    assert f"<pre>a  b\n{hanging}\n{flow}>x</span>{flow}>y</span></pre>" in text


def test_a_map_says_what_its_colours_stand_for() -> None:
    def notes(values: list[list[float | None]], *, scale: bool = True) -> list[str | None]:
        drawn = heat_map("", values, rows=["r"], columns=["c"], most=2.0, scale=scale).document()
        return [one.text for one in ElementTree.fromstring(drawn.encode()).iter() if one.text]

    assert notes([[1.0]])[-7:] == ["0", "0", "0.5", "1", "1.5", "2", "2"]
    assert "-2" in notes([[-0.1]])
    assert notes([[1.0]], scale=False)[-1] == "r, c: 1"
    assert notes([[None]])[-1] == "r, c: -"


def test_what_is_not_zero_has_a_bar() -> None:
    drawn = bars("", [("a", 1e9, ""), ("b", 1e-9, ""), ("c", 0.0, "")], length=100)
    assert re.findall(r' width="([^"]+)" height="15"', drawn.body) == ["100", "1", "0"]


@pytest.mark.parametrize("name", DRAWN)
def test_views_with_pictures(invoke: Invoke, name: str) -> None:
    args = ["inspect-layers", "-m", "stories260k", "--view", name]
    done = invoke(*args, "--svg", "a.svg", "--html", "a.html")
    assert done.code == 0
    assert done.err == "wrote a.svg\nwrote a.html\n"
    ElementTree.fromstring(Path("a.svg").read_bytes())
    html = Path("a.html").read_text("utf-8")
    assert html.startswith("<!doctype html>")
    assert html.rstrip().endswith("</html>")
    assert "<svg " in html
    assert sorted(path.name for path in Path().iterdir()) == ["a.html", "a.svg"]


@pytest.mark.parametrize(("owner", "name"), [(whole_file, "write_all"), (os, "replace")])
def test_a_failed_write_leaves_what_was_there(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch, owner: object, name: str
) -> None:
    Path("a.svg").write_text("before")

    def full(*_: object, **__: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(owner, name, full)
    done = invoke("inspect-layers", "-m", "stories260k", "--view", "masks", "--svg", "a.svg")
    assert done.code == 1
    assert "a.svg cannot be written: No space left on device" in done.err
    assert [path.name for path in Path().iterdir()] == ["a.svg"]
    assert Path("a.svg").read_text() == "before"


def test_a_device_is_written_to_as_it_is(invoke: Invoke) -> None:
    done = invoke("inspect-layers", "-m", "stories260k", "--view", "masks", "--svg", "/dev/null")
    assert done.code == 0
    assert Path("/dev/null").is_char_device()
