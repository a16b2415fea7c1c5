"""llmcli convert: a GGUF file into a checkpoint folder."""

from __future__ import annotations

from llmcli.cli import options, terminal


def convert(
    file: options.GgufFile,
    out_dir: options.OutDir,
    dtype: options.ConvertDtype = "float16",
    debug: options.Debug = False,  # noqa: ARG001
) -> None:
    """Turn a GGUF file into a checkpoint folder."""
    from llmcli.acquire.gguf_import import convert as run
    from llmcli.cli.progress import FetchProgress

    with FetchProgress() as progress:
        run(file, out_dir, dtype=dtype, progress=progress)
    answer = terminal.Answer()
    answer.write(str(out_dir))
    answer.end()
