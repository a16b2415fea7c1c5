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
from llmcli.cli.commands import NAME, command_names, make_app, named_in
from llmcli.cli.failures import explained
from llmcli.cli.usage import is_help, usage_error

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
    except Exception as error:
        if interrupts.pending():
            return _interrupted()
        told = explained(error)
        terminal.fail(told.error, debug=debug or told.is_bug)
        return told.error.exit_code


def _interrupted() -> int:
    if terminal.is_terminal(sys.stderr):
        terminal.note()
    return interrupts.INTERRUPTED


def _invoke(args: Sequence[str]) -> int:
    if f"_{NAME.upper()}_COMPLETE" in os.environ:
        make_app()(args, prog_name=NAME)
    try:
        # Typer's own main() would turn any broken pipe, a server's too, into a silent exit 1.
        command = typer.main.get_command(make_app(named_in(args)))
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
