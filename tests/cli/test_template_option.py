"""--template FILE: in place of the checkpoint's own, and never a default made up (C8)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Invoke
from tests.puppet import Added, make_puppet

OWN = "own: {{ messages[-1].content }}"
GIVEN = "{% for m in messages %}{{ m.role }}: {{ m.content }}<|stop|>{% endfor %}>"


@pytest.mark.parametrize("own", [OWN, None, "{{ unclosed"])
def test_a_given_template_wins(invoke: Invoke, tmp_path: Path, own: str | None) -> None:
    puppet = make_puppet(tmp_path / "model", ["ok"], added=[Added("<|stop|>")], chat_template=own)
    Path("t.jinja").write_text(GIVEN, encoding="utf-8")
    args = ["generate", "-m", str(puppet.folder), "hi", "--template", "t.jinja", "--json"]
    told = json.loads(invoke(*args, "--system", "s").out)
    assert told["prompt"] == "system: s<|stop|>user: hi<|stop|>>"
    assert told["text"] == "ok"


def test_its_turn_end_stops_the_reply(invoke: Invoke, tmp_path: Path) -> None:
    script = ["a", "<|stop|>", "b"]
    puppet = make_puppet(tmp_path / "model", script, added=[Added("<|stop|>")])
    Path("t.jinja").write_text(GIVEN, encoding="utf-8")
    args = ["generate", "-m", str(puppet.folder), "hi"]
    assert invoke(*args).out == "ab\n"
    assert invoke(*args, "--template", "t.jinja").out == "a\n"


@pytest.mark.parametrize(
    ("text", "args", "code", "message"),
    [
        (None, [], 2, "--template t.jinja is not a file"),
        (GIVEN, ["--raw"], 2, "--raw does not read --template"),
        (" \n", [], 1, "t.jinja is empty"),
        ("{{ a", [], 1, "t.jinja, line 1 does not compile"),
        ("only {{ messages[-1].content }}", ["--system", "s"], 1, "t.jinja has no place for a sys"),
    ],
)
def test_mistakes(
    invoke: Invoke, tmp_path: Path, text: str | None, args: list[str], code: int, message: str
) -> None:
    puppet = make_puppet(tmp_path / "model", ["ok"])
    if text is not None:
        Path("t.jinja").write_text(text, encoding="utf-8")
    result = invoke("generate", "-m", str(puppet.folder), "hi", "--template", "t.jinja", *args)
    assert (result.code, result.out) == (code, "")
    assert message in result.err.splitlines()[0]
