"""What the command line imports before a command needs it, and how soon the help is there."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

HEAVY = {
    "torch",
    "numpy",
    "rich",
    "huggingface_hub",
    "gguf",
    "tokenizers",
    "safetensors",
    "jinja2",
    "prompt_toolkit",
}

REPORT = """
import json, os, sys
ended = os._exit
def report(code):
    names = sorted({name.partition(".")[0] for name in sys.modules})
    sys.stderr.write(json.dumps([code, names, len(sys.modules)]))
    sys.stderr.flush()
    ended(code)
os._exit = report
sys.argv = ["llmcli", *sys.argv[1:]]
from llmcli.cli.app import main
main()
"""


def run(*args: str) -> tuple[int, set[str], int]:
    """Exit code, imported top-level packages, and how many modules."""
    done = subprocess.run(
        [sys.executable, "-c", REPORT, *args],
        capture_output=True,
        check=False,
        env={**os.environ, "COLUMNS": "80"},
    )
    code, names, count = json.loads(done.stderr.splitlines()[-1])
    return code, set(names), count


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["--help"], 0),
        (["--version"], 0),
        (["generate", "--help"], 0),
        (["chat", "--help"], 0),
        (["generate", "--top-k", "x", "hi"], 2),
    ],
)
def test_nothing_heavy_is_imported(args: list[str], code: int) -> None:
    ended, names, _ = run(*args)
    assert ended == code
    assert not names & HEAVY


def test_the_help_needs_few_modules() -> None:
    _, names, count = run("--help")
    # Measured 165: the interpreter, Typer, and a handful of ours.
    assert count < 200
    assert "pydantic" not in names


def test_wrong_flags_are_told_before_torch_is_imported() -> None:
    ended, names, _ = run("generate", "--top-p", "2", "hi", "-m", "stories260k")
    assert ended == 2
    assert "torch" not in names


def test_ctrl_c_is_handled_before_the_first_import_of_others() -> None:
    code = (
        "import sys; before = set(sys.modules); import llmcli.cli.app; "
        "print(*{name for name in set(sys.modules) - before if 'llmcli' not in name})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout.split() == ["__future__"]
