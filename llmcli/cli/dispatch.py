"""One command line to its exit code. The one place where errors become exit codes.

Must not know what the commands do.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence

import typer

from llmcli.cli import interrupts, terminal
from llmcli.cli.commands import NAME, app, command_names
from llmcli.cli.usage import is_help, usage_error
from llmcli.errors import LlmcliError

# 128 + SIGPIPE, which is what a shell reports for a program whose reader went away.
BROKEN_PIPE = 141


def run(args: Sequence[str]) -> int:
    """The exit code of one command line; every message has been printed by then."""
    debug = "--debug" in args
    if not sys.warnoptions and not debug:
        # Libraries' warnings are for programmers; a user cannot act on them.
        warnings.simplefilter("ignore")
    try:
        return _invoke(args)
    except KeyboardInterrupt:
        return _interrupted()
    except (terminal.ReaderGoneError, BrokenPipeError):
        return BROKEN_PIPE
    except LlmcliError as error:
        if interrupts.pending():
            return _interrupted()
        terminal.fail(error, debug=debug)
        return error.exit_code
    except OSError as error:
        if interrupts.pending():
            return _interrupted()
        terminal.fail(_from_system(error), debug=debug)
        return 1
    except Exception as error:
        if interrupts.pending():
            return _interrupted()
        short = _out_of_memory(error)
        terminal.fail(short or _bug(error), debug=debug or short is None)
        return 1


def _interrupted() -> int:
    if terminal.is_terminal(sys.stderr):
        terminal.note()
    return interrupts.INTERRUPTED


def _invoke(args: Sequence[str]) -> int:
    if f"_{NAME.upper()}_COMPLETE" in os.environ:
        app(args, prog_name=NAME)
    try:
        # Typer's own main() would turn any broken pipe, a server's too, into a silent exit 1.
        command = typer.main.get_command(app)
        with command.make_context(NAME, list(args)) as context:
            result = command.invoke(context)
    except typer.Exit as done:
        return done.exit_code
    except typer.TyperException as error:
        if is_help(error):
            terminal.show(error.format_message())
            return 2
        raise usage_error(error, args, command_names()) from error
    return result if isinstance(result, int) else 0


def _from_system(error: OSError) -> LlmcliError:
    where = f": {error.filename}" if error.filename is not None else ""
    wrapped = LlmcliError(
        f"{error.strerror or type(error).__name__}{where}",
        hint="a file or a connection failed; --debug shows where",
    )
    wrapped.__cause__ = error
    return wrapped


def _out_of_memory(error: Exception) -> LlmcliError | None:
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    told = "out of memory" in text or "can't allocate" in text
    if not isinstance(error, MemoryError) and not (isinstance(error, RuntimeError) and told):
        return None
    short = LlmcliError(
        f"not enough memory: {text}",
        hint="try --dtype bfloat16, a shorter prompt, a smaller --max-new-tokens or model",
    )
    short.__cause__ = error
    return short


def _bug(error: Exception) -> LlmcliError:
    bug = LlmcliError(
        f"internal error: {type(error).__name__}: {error}",
        hint="this is a fault of llmcli, not yours; please report it with the lines above",
    )
    bug.__cause__ = error
    return bug
