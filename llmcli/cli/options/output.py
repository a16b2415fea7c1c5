"""What is printed, and where."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from llmcli import __version__
from llmcli.cli import terminal
from llmcli.cli.options.making import OUTPUT, flag, value_option, whole_parser


def _show_version(value: bool) -> None:
    if value:
        answer = terminal.Answer()
        answer.write(f"llmcli {__version__}")
        answer.end()
        raise typer.Exit


Echo = Annotated[bool, flag("--echo", help="Print the prompt before the answer.", panel=OUTPUT)]
RawOutput = Annotated[
    bool,
    flag("--raw-output", help="Let control codes reach the terminal.", panel=OUTPUT),
]
Json = Annotated[bool, flag("--json", help="Print JSON instead of text.", panel=OUTPUT)]
Logprobs = Annotated[
    int | None,
    value_option(
        "--logprobs",
        metavar="N",
        help="Report each token's logprob and the N likeliest tokens.",
        panel=OUTPUT,
        parser=whole_parser("--logprobs"),
    ),
]
Receipt = Annotated[
    Path | None,
    value_option(
        "--receipt",
        metavar="FILE",
        help="Write what the run stood on and what came of it, for `llmcli replay FILE`.",
        panel=OUTPUT,
    ),
]
Verbose = Annotated[
    bool,
    flag(
        "--verbose",
        "-v",
        help="Tell on stderr what is used and why, and statistics.",
        panel=OUTPUT,
    ),
]
Debug = Annotated[bool, flag("--debug", help="Show the traceback of an error.")]
Version = Annotated[
    bool,
    typer.Option(
        "--version",
        help="Print the version.",
        callback=_show_version,
        is_eager=True,
        show_default=False,
    ),
]
