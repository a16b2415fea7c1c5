"""llmcli models: the checkpoints on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llmcli.cli import options, terminal

if TYPE_CHECKING:
    from llmcli.acquire.places import Installed


def models(json: options.Json = False, debug: options.Debug = False) -> None:  # noqa: ARG001
    """List the checkpoints on this machine."""
    from llmcli.acquire.places import installed

    found = installed()
    if json:
        terminal.print_json([_row(model) for model in found])
        return
    terminal.print_table(
        ("NAME", "FAMILY", "PARAMETERS", "SIZE", "SOURCE", "PATH"),
        [
            (
                model.name if model.first else f"{model.name} (hidden)",
                model.model_type or "-",
                f"{model.parameters:,}" if model.parameters is not None else "-",
                f"{model.bytes / 1e6:,.1f} MB",
                model.source,
                str(model.path) if model.problem is None else f"{model.path}: {model.problem}",
            )
            for model in found
        ],
    )


def _row(model: Installed) -> dict[str, Any]:
    return {
        "name": model.name,
        "path": str(model.path),
        "size_bytes": model.bytes,
        "family": model.model_type,
        "parameters": model.parameters,
        "source": model.source,
        "problem": model.problem,
        "used_first": model.first,
    }
