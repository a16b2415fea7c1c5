"""bench-cache --compare: two reports that were kept, side by side."""

from __future__ import annotations

import sys
from pathlib import Path

from llmcli.checkpoint.escape import printable
from llmcli.cli import terminal
from llmcli.cli.benching import wording
from llmcli.cli.benching.asked import OutputForm
from llmcli.cli.benching.page import write_lines
from llmcli.errors import UsageError


def check_alone(given: bool) -> None:
    """Raise UsageError where options of a measurement stand beside --compare."""
    if given:
        raise UsageError(
            "--compare measures nothing and reads --output alone",
            hint="leave the other options out, or leave --compare out and measure",
        )


def compare_files(paths: tuple[Path, Path], output: OutputForm | None) -> int:
    """Two reports side by side on stdout."""
    from dataclasses import asdict

    from llmcli.bench.compare import compare

    if output not in (None, "table", "json"):
        raise UsageError(f"--compare does not write --output {output}", hint="use table or json")
    first, second = (_read(path) for path in paths)
    names = printable(str(paths[0])), printable(str(paths[1]))
    found = compare(first, second, names)
    if output == "json":
        terminal.print_json(asdict(found))
    else:
        write_lines(list(wording.compared_lines(found, names, terminal.width(sys.stdout))))
    return 0


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UsageError(
            f"--compare {printable(str(path))} cannot be read: {reason}", hint="check the path"
        ) from error
