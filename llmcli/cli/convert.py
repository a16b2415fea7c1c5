"""llmcli convert: a GGUF file into a checkpoint folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from llmcli.cli import interrupts, options, terminal
from llmcli.cli.sizes import in_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from llmcli.cli.options.folders import StoredDtype


def convert(
    file: options.GgufFile,
    out_dir: options.OutDir,
    dtype: options.ConvertDtype = None,
    keep_quantized: options.KeepQuantized = False,
    debug: options.Debug = False,  # noqa: ARG001
) -> None:
    """Turn a GGUF file into a checkpoint folder."""
    if keep_quantized:
        _keep(file, out_dir, dtype)
    else:
        from llmcli.acquire.gguf_import import convert as run
        from llmcli.cli.progress import FetchProgress

        with FetchProgress() as progress:
            run(file, out_dir, dtype=dtype or "float16", progress=progress)
    answer = terminal.Answer()
    answer.write(str(out_dir))
    answer.end()


def _keep(file: Path, out: Path, dtype: StoredDtype | None) -> None:
    from llmcli.cli.progress import FetchProgress

    with interrupts.ending_at_once():
        from llmcli.engine.kept_blocks import convert_kept
    with FetchProgress() as progress:
        done = convert_kept(file, out, dtype=dtype, progress=progress)
    terminal.note(f"matrices kept as they are: {_counts(done.kept)}")
    if done.plain:
        terminal.note(f"matrices made floats: {_counts(done.plain)}")
    terminal.note(f"weights: {in_bytes(done.before)} in the file, now {in_bytes(done.after)}")


def _counts(by_kind: Mapping[str, int]) -> str:
    return ", ".join(f"{count} of {kind}" for kind, count in sorted(by_kind.items()))
