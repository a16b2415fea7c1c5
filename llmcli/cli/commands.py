"""The commands' table. Must not know exit codes."""

from __future__ import annotations

import typer

from llmcli.cli import (
    bench_cache,
    chat,
    convert,
    generate,
    inspect_layers,
    models,
    options,
    pull,
    replay,
)
from llmcli.cli.grouped import GroupedCommand

NAME = "llmcli"

app = typer.Typer(
    name=NAME,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("generate", cls=GroupedCommand)(generate.generate)
app.command("chat", cls=chat.ChatCommand)(chat.chat)
app.command("replay", cls=GroupedCommand)(replay.replay)
app.command("inspect-layers", cls=GroupedCommand)(inspect_layers.inspect_layers)
app.command("bench-cache", cls=GroupedCommand)(bench_cache.bench_cache)
app.command("pull", cls=GroupedCommand)(pull.pull)
app.command("models", cls=GroupedCommand)(models.models)
app.command("convert", cls=GroupedCommand)(convert.convert)


@app.callback()
def root(version: options.Version = False) -> None:
    """Generate text from a terminal, on your own checkpoint and machine."""


def command_names() -> list[str]:
    """In the order of the help."""
    return [command.name for command in app.registered_commands if command.name]
