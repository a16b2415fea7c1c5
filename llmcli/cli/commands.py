"""The commands' table. Must not know exit codes.

Only the command that is asked for is imported; the list in the help needs none.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from importlib import import_module
from typing import Any

import typer

from llmcli.cli import options

NAME = "llmcli"

# Name and what the list of commands says of it; the function bears the name with underscores, in
# a module of its own.
COMMANDS = {
    "generate": "Answer a prompt, or continue a text.",
    "chat": "Talk with a model in a conversation that is kept.",
    "replay": "Run a receipt again and tell the first difference.",
    "inspect-layers": "Show what a transformer holds and does.",
    "bench-cache": "Measure what the KV cache buys, and prove it.",
    "pull": "Fetch a checkpoint and print its folder.",
    "models": "List the checkpoints on this machine.",
    "convert": "Turn a GGUF file into a checkpoint folder.",
    "quantize": "Write a checkpoint in 8 or 4 bits.",
}


def make_app(whole: Collection[str] = tuple(COMMANDS)) -> typer.Typer:
    """The program with these commands whole, the others by name and help alone."""
    app = typer.Typer(
        name=NAME,
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    for name, told in COMMANDS.items():
        function, kind = _imported(name) if name in whole else (_stub, None)
        app.command(name, cls=kind, short_help=told)(function)
    app.callback()(root)
    return app


def named_in(args: Sequence[str]) -> list[str]:
    """The command that these arguments ask for, if any."""
    return [arg for arg in args if arg in COMMANDS][:1]


def commands_with(option: str) -> list[str]:
    """The commands that have an option of this name; this imports them all."""
    app: Any = typer.main.get_command(make_app())
    return [
        name
        for name, command in app.commands.items()
        if any(option in (*one.opts, *one.secondary_opts) for one in command.params)
    ]


def root(version: options.Version = False) -> None:
    """Generate text from a terminal, on your own checkpoint and machine."""


def command_names() -> list[str]:
    """In the order of the help."""
    return list(COMMANDS)


def _imported(name: str) -> tuple[Any, Any]:
    from llmcli.cli.grouped import GroupedCommand

    function = name.replace("-", "_")
    module = import_module(f"llmcli.cli.{function}")
    return vars(module)[function], vars(module).get("COMMAND_CLASS", GroupedCommand)


def _stub() -> None:
    raise AssertionError("a command that was not asked for")
