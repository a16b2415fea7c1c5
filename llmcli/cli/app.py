"""The entry point: the commands' table, and the one place where errors become exit codes."""

from __future__ import annotations

import errno
import os
import sys

import typer

from llmcli.cli import convert, generate, models, options, pull, terminal
from llmcli.errors import LlmcliError, UsageError

# 128 + SIGPIPE, which is what a shell reports for a program whose reader went away.
_BROKEN_PIPE = 141
_INTERRUPTED = 130

app = typer.Typer(
    name="llmcli",
    help="Generate text from a terminal, on your own checkpoint and machine.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("generate")(generate.generate)
app.command("pull")(pull.pull)
app.command("models")(models.models)
app.command("convert")(convert.convert)


@app.callback()
def root(version: options.Version = False) -> None:
    """Generate text from a terminal, on your own checkpoint and machine."""


def main() -> None:
    """Run the command line and exit: 0, 1 run time, 2 usage, 130 Ctrl-C, 141 broken pipe."""
    debug = "--debug" in sys.argv[1:]
    try:
        code = _run(debug=debug)
    except KeyboardInterrupt:
        code = _INTERRUPTED
    except OSError as error:
        code = _output_error(error, debug=debug)
    _flush_and_exit(code)


def _run(*, debug: bool) -> int:
    try:
        result = app(standalone_mode=False)
    except LlmcliError as error:
        terminal.fail(error, debug=debug)
        return error.exit_code
    except typer.Exit as done:
        return done.exit_code
    except typer.Abort:
        return _INTERRUPTED
    except typer.TyperException as error:
        terminal.fail(_usage(error), debug=debug)
        return 2
    except (MemoryError, RuntimeError) as error:
        if (short := _out_of_memory(error)) is None:
            raise
        terminal.fail(short, debug=debug)
        return 1
    return result if isinstance(result, int) else 0


def _usage(error: typer.TyperException) -> UsageError:
    context = getattr(error, "ctx", None)
    command = context.command_path if context else "llmcli"
    return UsageError(error.format_message().rstrip("."), hint=f"see `{command} --help`")


def _out_of_memory(error: MemoryError | RuntimeError) -> LlmcliError | None:
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    if isinstance(error, MemoryError) or "out of memory" in text or "can't allocate" in text:
        return LlmcliError(
            f"not enough memory: {text}",
            hint="try --dtype bfloat16, a shorter prompt, a smaller --max-new-tokens or model",
        )
    return None


def _output_error(error: OSError, *, debug: bool) -> int:
    if isinstance(error, BrokenPipeError) or error.errno == errno.EPIPE:
        terminal.silence_stdout()
        return _BROKEN_PIPE
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EBADF) or not debug:
        wrapped = LlmcliError(
            f"{error.strerror or error}" + (f": {error.filename}" if error.filename else ""),
            hint="the output or a file cannot be written or read; --debug shows where",
        )
        wrapped.__cause__ = error
        terminal.fail(wrapped, debug=debug)
        terminal.silence_stdout()
        return 1
    raise error


def _flush_and_exit(code: int) -> None:
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        terminal.silence_stdout()
    # Nothing is left to tidy up, and tearing torch down takes longer than many answers.
    if sys.stderr is not None:
        sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
