"""llmcli pull: fetch a checkpoint and keep it."""

from __future__ import annotations

from typing import Annotated

import typer

from llmcli.cli import options, terminal


def pull(
    name: Annotated[str, typer.Argument(help="A catalogue name or a hub id OWNER/NAME.")],
    revision: Annotated[
        str | None,
        typer.Option(help="A hub branch, tag or commit.", show_default=False),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Fetch it again although it is here.")
    ] = False,
    debug: options.Debug = False,  # noqa: ARG001
) -> None:
    """Fetch a checkpoint into llmcli's weights folder and print where it lies."""
    from llmcli.acquire.pull import pull as fetch
    from llmcli.cli.progress import FetchProgress

    with FetchProgress() as progress:
        resolved = fetch(name, progress=progress, force=force, revision=revision)
    if resolved.notice:
        terminal.note(resolved.notice)
    answer = terminal.Answer()
    answer.write(str(resolved.path))
    answer.end()
