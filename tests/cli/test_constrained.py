"""--json-schema, --regex and --grammar from the command line."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Invoke

START = ["generate", "-m", "stories260k", "Once upon a time"]
NAMES = ("json-schema", "regex", "grammar")


@pytest.fixture
def files() -> dict[str, str]:
    """An argument for each option; all of them allow yes and no."""
    Path("s.json").write_text('{"enum": ["yes", "no"]}')
    Path("g.lark").write_text('start: "yes" | "no"\n')
    return {"json-schema": "s.json", "regex": "yes|no", "grammar": "g.lark"}


@pytest.mark.parametrize("name", NAMES)
def test_the_text_and_its_report(invoke: Invoke, files: dict[str, str], name: str) -> None:
    result = invoke(*START, f"--{name}", files[name], "--json")
    told = json.loads(result.out)
    assert re.fullmatch('"?(yes|no)"?', told["text"])
    assert told["finish_reason"] == "stop"
    assert told["satisfied"] is True
    assert told["options"][name.replace("-", "_")] == {"value": files[name], "source": "flag"}
    cut = json.loads(invoke(*START, f"--{name}", files[name], "--json", "-n", "0").out)
    assert (cut["finish_reason"], cut["satisfied"]) == ("length", False)


def test_verbose_says_whether_it_was_kept(invoke: Invoke) -> None:
    assert "regex: kept" in invoke(*START, "--regex", "yes|no", "-v").err
    assert "regex: cut off before its end" in invoke(*START, "--regex", "a{9}", "-v", "-n", "2").err


def test_without_a_constraint_there_is_nothing_to_satisfy(invoke: Invoke) -> None:
    assert json.loads(invoke(*START, "-n", "1", "--json").out)["satisfied"] is None


def test_echo(invoke: Invoke) -> None:
    assert invoke(*START, "--regex", " Lily", "--echo").out == "Once upon a time Lily\n"


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--regex", "(a"], "--regex (a: unclosed group"),
        (["--regex", "a", "--grammar", "g.lark"], "--regex and --grammar contradict each other"),
        (["--json-schema", "none.json"], "--json-schema none.json cannot be read"),
        (["--grammar", "bad.lark"], "--grammar bad.lark: at 1(8): unknown name"),
        (["--regex", "a", "--stop", "b"], "--stop does not go with --regex"),
        (["--regex", "a", "--strategy", "dola"], "strategy dola does not read --regex"),
    ],
)
def test_mistakes_are_told_before_anything_is_loaded(
    invoke: Invoke, args: list[str], said: str
) -> None:
    Path("bad.lark").write_text("start: foo")
    result = invoke("generate", "-m", "no-such-model", "hi", *args)
    assert result.code == 2
    assert said in result.err
    assert "hint:" in result.err
    assert "Traceback" not in result.err


def test_without_the_engine(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llguidance", None)
    result = invoke(*START, "--regex", "a")
    assert result.code == 1
    assert "--regex needs the package llguidance, which is not installed" in result.err
    assert "hint: pip install 'llmcli[constrained]'" in result.err
    assert invoke(*START, "-n", "1").code == 0
