"""docs/cli.md, rendered from the commands themselves: `python -m llmcli.cli.reference`.

Must not know what the commands do, only how they are declared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import typer

from llmcli.cli import terminal
from llmcli.cli.commands import NAME, make_app
from llmcli.cli.grouped import groups

_INTRODUCTION = """\
# Command line

Written by `python -m llmcli.cli.reference` from the commands themselves; do not edit it by hand.
"""

_RULES = """\
## What goes where

* Standard output carries the answer and nothing else. Warnings, statistics and errors go to
  standard error, and progress bars are drawn there only on a terminal.
* **The prompt** is the argument, then the file of `--file`, then standard input, joined by single
  newlines. Standard input is read when it is a pipe or a file, or when `-` asks for it; what is
  empty adds nothing. All of it has to be UTF-8. A byte order mark at the beginning, and one newline
  at the end, of a file or of standard input are not part of the prompt. In a shell loop that reads
  standard input itself, give `llmcli` `< /dev/null`. `--` goes before a prompt that begins with a
  dash.
* **The final newline**: exactly one newline is added at the end of every answer, whether or not
  the model's text ends in one, so what stands before it is the text, byte for byte. `--json` holds
  the text without it.
* **Control codes**: on a terminal each control code of the model's text except newline and tab is
  shown as a visible character, so that no text can drive the terminal; a carriage return before a
  newline is dropped. `--raw-output` lets them through. In a pipe or a file the text is unchanged.
  Messages on standard error are always made visible in this way.
* Each piece of text is written and flushed as soon as it is certain. In a pipe or a file it is
  UTF-8 whatever the locale is; on a terminal, what the locale cannot show becomes `?`.
* Nothing is wrapped, and the model's text and yours are never read as markup.
* Stop strings are looked for in the shown text: they cannot match special tokens that are hidden,
  nor the prompt. No part of a stop string is ever printed.
* **Where a setting comes from**: a flag, else the checkpoint's generation_config.json, else the
  built-in value, key by key; a 0 that you give counts as given. Without `--strategy`, sampling is
  on when the file says `do_sample`, or when one of `-t`, `--top-k`, `--top-p`, `--min-p` is given.
  `-t 0` is greedy whatever else is set. `-v` and `--json` tell every value and its source.
* **Ctrl-C** ends an answer early: the text so far is kept, with what was held back of a character
  or of a stop string, and the exit code is 130. A second press ends at once.
"""

_EXIT_CODES = (
    ("0", "Done."),
    ("1", "The checkpoint, the machine or the run failed; one line says why."),
    ("2", "The command line asks for something that cannot be asked."),
    ("130", "Ctrl-C. The text so far has been written."),
    ("141", "Whoever read standard output has closed it."),
)

_VARIABLES = (
    ("LLMCLI_MODEL", "The model when `--model` is not given."),
    (
        "LLMCLI_HOME",
        "Where pulled checkpoints are kept, in `weights/`, and conversations, in `chats/`; by "
        "default the platform's user data folder. A `weights/` in the current folder is "
        "searched first.",
    ),
    ("HF_ENDPOINT", "The address of the hub that ids OWNER/NAME are fetched from."),
    ("HF_HUB_OFFLINE", "1: use what the hub's own cache holds, and no network."),
    ("VISUAL, EDITOR", "The editor that Ctrl-X Ctrl-E opens in a chat."),
    ("NO_COLOR", "Not empty: no colours."),
    ("TERM", "`dumb`: no colours and no progress bars."),
    ("COLUMNS", "The width of help texts and progress bars."),
)


def render() -> str:
    """The whole page."""
    app = make_app()
    root: Any = typer.main.get_command(app)
    settings = app.info.context_settings or {}
    with typer.Context(root, info_name=NAME, **settings) as context:
        sections = [_INTRODUCTION, *_command(root, context), *_commands(root.commands)]
        for name, command in root.commands.items():
            with typer.Context(command, info_name=name, parent=context, **settings) as inner:
                sections += _command(command, inner)
    sections += [_RULES, "## Exit codes\n", *_table("Code", "Meaning", _EXIT_CODES)]
    sections += ["## Environment variables\n", *_table("Name", "Meaning", _VARIABLES)]
    return "\n".join(sections).rstrip("\n") + "\n"


def _command(command: Any, context: Any) -> list[str]:
    pieces = " ".join(command.collect_usage_pieces(context))
    lines = [f"## `{context.command_path}`", "", *_paragraphs(command.help), ""]
    lines += ["```", f"{context.command_path} {pieces}", "```", ""]
    for title, rows in groups(command, context).items():
        lines += _table(title, "", [(f"`{name}`", text) for name, text in rows])
    return lines


def _commands(commands: dict[str, Any]) -> list[str]:
    rows = [(f"`{name}`", command.get_short_help_str(100)) for name, command in commands.items()]
    return _table("Commands", "", rows)


def _paragraphs(text: str) -> list[str]:
    return [line.strip() for line in text.strip().splitlines()]


def _table(first: str, second: str, rows: Sequence[tuple[str, str]]) -> list[str]:
    lines = [f"| {first} | {second} |", "|---|---|"]
    return [*lines, *(f"| {_cell(name)} | {_cell(text)} |" for name, text in rows), ""]


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    answer = terminal.Answer(raw=True)
    answer.write(render())
