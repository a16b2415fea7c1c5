"""llmcli replay: run a receipt again, and say whether the same came of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from llmcli.cli import options
from llmcli.cli.bundles import unbundled
from llmcli.cli.options.strategies import DraftModel

ReceiptFile = Annotated[
    Path,
    typer.Argument(
        metavar="FILE", help="What `generate --receipt FILE` wrote.", show_default=False
    ),
]
ForceReplay = Annotated[
    bool, options.flag("--force", help="Go on although the checkpoint's files are not the same.")
]


@unbundled
def replay(
    *,
    file: ReceiptFile,
    loading: options.Loading,
    draft_model: DraftModel = None,
    force: ForceReplay = False,
    json: options.Json = False,
    verbose: options.Verbose = False,
    debug: options.Debug = False,  # noqa: ARG001
) -> int:
    """Run a receipt's prompt again and tell the first difference.

    Model, device, dtype, threads and cache are the receipt's own unless they are given. The exit
    code is 0 where every new token is the same, 1 where not.
    """
    from llmcli.cli.replaying import replay_file

    return replay_file(file, loading, draft_model, force=force, json=json, verbose=verbose)
