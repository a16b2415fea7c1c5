"""llmcli pull: fetch a checkpoint and keep it."""

from __future__ import annotations

from llmcli.cli import options, terminal


def pull(
    name: options.PullName,
    revision: options.Revision = None,
    force: options.Force = False,
    debug: options.Debug = False,  # noqa: ARG001
) -> None:
    """Fetch a checkpoint and print its folder."""
    from llmcli.acquire.pull import pull as fetch
    from llmcli.cli.progress import FetchProgress

    with FetchProgress() as progress:
        resolved = fetch(name, progress=progress, force=force, revision=revision)
    if resolved.notice:
        terminal.note(resolved.notice)
    answer = terminal.Answer()
    answer.write(str(resolved.path))
    answer.end()
