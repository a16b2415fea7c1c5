"""What the command-line parser complains of, in our words and with a hint that helps.

Must not know what the commands do.
"""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Sequence
from typing import Any

import typer

from llmcli.cli.commands import commands_with
from llmcli.errors import UsageError


def is_help(error: typer.TyperException) -> bool:
    """Whether the "error" is only that nothing was given, so that the help should be shown."""
    return _kind(error) == "NoArgsIsHelpError"


def usage_error(
    error: typer.TyperException, args: Sequence[str], commands: Sequence[str]
) -> UsageError:
    """The parser's error as one line and a hint."""
    command = next((arg for arg in args if arg in commands), None)
    see = f"see `llmcli {command} --help`" if command else "see `llmcli --help`"
    # The parser's classes are not public, but their names have been the same for years.
    facts: dict[str, Any] = vars(error)
    match _kind(error):
        case "NoSuchOption":
            name = str(facts["option_name"])
            if able := commands_with(name):
                return _of_others(name, able, command if facts["ctx"].parent else None, see)
            return UsageError(f"there is no option {name}", hint=_option_hint(name, facts, see))
        case "BadOptionUsage":
            name = str(facts["option_name"])
            return UsageError(f"option {name} {_predicate(error)}", hint=see)
        case "MissingParameter":
            return UsageError(f"{_missing(facts['param'])} is missing", hint=see)
    if command is None:
        return _no_command(args, commands, see)
    if "extra argument" in error.format_message():
        return _extra(error, command, see)
    return UsageError(error.format_message().rstrip("."), hint=see)


def _kind(error: typer.TyperException) -> str:
    return type(error).__name__


def _option_hint(name: str, facts: dict[str, Any], see: str) -> str:
    close = list(facts.get("possibilities") or ())[:2]
    if close:
        return f"did you mean {' or '.join(close)}? {see}"
    if any(char.isspace() for char in name):
        return "put -- before a text that begins with a dash"
    return f"{see}; put -- before a text that begins with a dash"


def _of_others(name: str, able: Sequence[str], command: str | None, see: str) -> UsageError:
    """A known option behind a command that lacks it, or before any."""
    if command is None:
        return UsageError(
            f"option {name} stands before the command",
            hint=f"give it behind the name of one that has it: {', '.join(able)}",
        )
    return UsageError(
        f"{command} has no option {name}", hint=f"it belongs to {', '.join(able)}; {see}"
    )


def _missing(param: Any) -> str:
    return str(param.metavar or param.get_error_hint())


def _predicate(error: typer.TyperException) -> str:
    if "requires" in error.format_message():
        return "needs a value"
    return "takes no value"


def _no_command(args: Sequence[str], commands: Sequence[str], see: str) -> UsageError:
    given = next((arg for arg in args if not arg.startswith("-")), "")
    begun = [name for name in commands if given and name.startswith(given)]
    close = begun or difflib.get_close_matches(given, commands, n=1)
    if close:
        hint = f"did you mean {close[0]}? {see}"
    elif " " in given:
        hint = f"llmcli generate {shlex.quote(given)}"
    else:
        hint = f"the commands are {', '.join(commands)}; {see}"
    return UsageError(f"there is no command {given!r}", hint=hint)


def _extra(error: typer.TyperException, command: str, see: str) -> UsageError:
    # "Got unexpected extra argument(s) (is it)"
    extra = error.format_message().partition(") (")[2].rstrip(".").removesuffix(")")
    quotes = "put a prompt of several words into quotes; " if command == "generate" else ""
    return UsageError(f"{command}: unexpected argument {extra!r}", hint=quotes + see)
