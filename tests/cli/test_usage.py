"""The command line itself: help, unknown words, exit codes, shapes of messages (G5)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NoReturn

import pytest
import typer

from llmcli import __version__
from llmcli.cli import models
from llmcli.cli.commands import COMMANDS, command_names, make_app, named_in
from tests.cli.conftest import Invoke


def test_nothing_at_all_shows_the_help(invoke: Invoke) -> None:
    result = invoke()
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("Usage: llmcli [OPTIONS] COMMAND")
    assert result.err.rstrip("\n") == invoke("--help").out.rstrip("\n")


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_of_every_command(invoke: Invoke, flag: str) -> None:
    top = invoke(flag)
    assert (top.code, top.err) == (0, "")
    for name in command_names():
        assert re.search(rf"^  {name}  +[A-Z].*\.$", top.out, re.MULTILINE)
        result = invoke(name, flag)
        assert (result.code, result.err) == (0, "")
        assert result.out.startswith(f"Usage: llmcli {name} [OPTIONS]")
        assert "..." not in result.out


def test_help_is_grouped(invoke: Invoke) -> None:
    text = invoke("generate", "--help").out
    titles = re.findall(r"^(\S.*):$", text, re.MULTILINE)
    assert titles == [
        "Arguments",
        "Prompt",
        "Model and machine",
        "Where the text ends",
        "How tokens are chosen",
        "Sampling, further filters",
        "Penalties",
        "Settings of single strategies",
        "What the text must be",
        "Many answers at once",
        "Output",
        "Options",
    ]
    assert text.startswith("Usage: llmcli generate [OPTIONS] [PROMPT]\n")


@pytest.mark.parametrize("args", [["--version"], ["generate", "--version"]])
def test_version(invoke: Invoke, args: list[str]) -> None:
    result = invoke(*args)
    assert (result.code, result.out, result.err) == (0, f"llmcli {__version__}\n", "")


@pytest.mark.parametrize(
    ("args", "message", "hint"),
    [
        (["gen", "x"], "there is no command 'gen'", "did you mean generate? see `llmcli --help`"),
        (["modles"], "there is no command 'modles'", "did you mean models?"),
        (["hello there"], "there is no command 'hello there'", "llmcli generate 'hello there'"),
        (["[bold]x"], "there is no command '[bold]x'", "the commands are generate,"),
        (["--foo"], "there is no option --foo", "see `llmcli --help`"),
        (["generate", "--temprature", "1"], "there is no option --temprature", "did you mean --te"),
        (["generate", "--[bold]=x"], "there is no option --[bold]", "did you mean"),
        (["generate", "-x"], "there is no option -x", "see `llmcli generate --help`; put --"),
        (["generate", "- item"], "there is no option - ", "put -- before a text that begins"),
        (
            ["chat", "--raw"],
            "chat has no option --raw",
            "it belongs to generate, inspect-layers, bench-",
        ),
        (["pull", "--no-bos"], "pull has no option --no-bos", "it belongs to generate, "),
        (["-m", "x", "chat"], "option -m stands before the command", "give it behind the name of"),
        (["generate", "-m"], "option -m needs a value", "see `llmcli generate --help`"),
        (["generate", "--raw=1"], "option --raw takes no value", "see `llmcli generate --help`"),
        (["generate", "a", "b", "[c]"], "generate: unexpected argument 'b [c]'", "put a prompt"),
        (["models", "x"], "models: unexpected argument 'x'", "see `llmcli models --help`"),
        (["pull"], "NAME is missing", "see `llmcli pull --help`"),
        (["convert", "x"], "OUT_DIR is missing", "see `llmcli convert --help`"),
        (["generate", "--dtype", "fp16"], "--dtype is 'fp16'; it must", "did you mean float16? "),
        (["generate", "--quantize", "4"], "--quantize is '4'; it must", "did you mean int4? leave"),
        (["generate", "--cache", "rings"], "--cache is 'rings'; it must", "did you mean ring? "),
        (["quantize", "x", "--bits", "int8"], "--bits is 'int8'; it must be", "did you mean 8? "),
        (["generate", "--dtype", "16"], "--dtype is '16'; it must", "leave it out"),
        (["convert", "x", "y", "--dtype", "int8"], "--dtype is 'int8'; it must be one of", "leave"),
    ],
)
def test_mistakes(invoke: Invoke, args: list[str], message: str, hint: str) -> None:
    result = invoke(*args)
    assert (result.code, result.out) == (2, "")
    first, empty, last = result.err.splitlines()
    assert first.startswith(f"error: {message}")
    assert empty == ""
    assert last.startswith(f"hint: {hint}")


@pytest.mark.parametrize("debug", [False, True])
def test_traceback_only_on_request(invoke: Invoke, debug: bool) -> None:
    result = invoke("generate", "-m", "./nowhere", "hi", *(["--debug"] if debug else []))
    assert result.code == 1
    assert ("Traceback" in result.err) == debug
    assert result.err.endswith(
        "error: nowhere does not exist\n\nhint: give the folder of a checkpoint\n"
    )


def raising(error: BaseException) -> object:
    def installed() -> NoReturn:
        raise error

    return installed


@pytest.mark.parametrize(
    ("error", "code", "line", "traceback"),
    [
        (MemoryError(), 1, "error: not enough memory: MemoryError", False),
        (
            RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried 7 bytes\nmore"),
            1,
            "error: not enough memory: DefaultCPUAllocator: can't allocate memory: you tried 7",
            False,
        ),
        (PermissionError(13, "Permission denied", "/x"), 1, "error: Permission denied: /x", False),
        (TimeoutError(), 1, "error: TimeoutError", False),
        (BrokenPipeError(32, "Broken pipe"), 141, "", False),
        (KeyboardInterrupt(), 130, "", False),
        (ZeroDivisionError("\x1b[31m"), 1, "error: internal error: ZeroDivisionError: ␛[31m", True),
    ],
)
def test_exit_codes(
    invoke: Invoke,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    code: int,
    line: str,
    traceback: bool,
) -> None:
    monkeypatch.setattr("llmcli.acquire.places.installed", raising(error))
    result = invoke(models.__name__.rpartition(".")[2])
    assert (result.code, result.out) == (code, "")
    assert line in result.err
    assert ("Traceback" in result.err) == traceback
    assert "\x1b" not in result.err
    assert bool(result.err) == bool(line)


def test_warnings_of_libraries_are_not_the_users(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    import warnings

    def installed() -> list[object]:
        warnings.warn("programmers only", stacklevel=1)
        return []

    monkeypatch.setattr("llmcli.acquire.places.installed", installed)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        result = invoke("models")
    assert (result.code, result.err) == (0, "")


def test_only_one_file_prints() -> None:
    folder = Path(models.__file__).parents[1]
    printing = re.compile(r"\bprint\(|sys\.std(out|err)\.(write|buffer)|os\.write\(")
    found = {
        str(path.relative_to(folder))
        for path in folder.rglob("*.py")
        if printing.search(path.read_text(encoding="utf-8"))
    }
    assert found == {"cli/terminal.py"}


def test_commands_are_short() -> None:
    import ast

    for name in (shown.replace("-", "_") for shown in command_names()):
        tree = ast.parse((Path(models.__file__).parent / f"{name}.py").read_text(encoding="utf-8"))
        (command,) = [
            node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name
        ]
        body = command.body[1:]  # the first is its docstring
        assert (body[-1].end_lineno or 0) - body[0].lineno < 40


def test_each_command_is_whole_when_it_is_asked_for(invoke: Invoke) -> None:
    """What the list says of a command, and that the list needs none of them."""
    whole: Any = typer.main.get_command(make_app())
    light: Any = typer.main.get_command(make_app(()))
    assert list(whole.commands) == list(light.commands) == command_names()
    for name in command_names():
        assert len(whole.commands[name].params) > 1
        assert not light.commands[name].params[1:]
        assert named_in(["--debug", name, "chat"]) == [name]
        assert len(COMMANDS[name]) <= 60
