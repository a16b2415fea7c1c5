"""llmcli convert: a GGUF file into a checkpoint folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from llmcli.cli import options, terminal


def convert(
    file: Annotated[Path, typer.Argument(help="A GGUF file.", show_default=False)],
    out_dir: Annotated[Path, typer.Argument(help="A new folder.", show_default=False)],
    dtype: Annotated[
        Literal["float16", "bfloat16", "float32"],
        typer.Option(help="The numbers to write."),
    ] = "float16",
    debug: options.Debug = False,  # noqa: ARG001
) -> None:
    """Turn a GGUF file into a folder of safetensors, config and tokenizer."""
    from llmcli.acquire.gguf_import import convert as run
    from llmcli.cli.progress import FetchProgress

    with FetchProgress() as progress:
        run(file, out_dir, dtype=dtype, progress=progress)
    answer = terminal.Answer()
    answer.write(str(out_dir))
    answer.end()
