"""The options of chat alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import typer

from llmcli.cli import options
from llmcli.cli.options import OUTPUT, one_of, value_option

CONVERSATION = "Conversation"

OverflowChoice = Literal["drop-oldest", "stop", "shift"]
ThinkChoice = Literal["show", "hide"]

DEFAULT_OVERFLOW: OverflowChoice = "drop-oldest"
DEFAULT_THINK: ThinkChoice = "show"

# What --resume without a name is read as: the conversation that was changed last.
LAST = ""

Resume = Annotated[
    str | None,
    value_option(
        "--resume",
        metavar="[NAME]",
        help="Go on with the conversation of that name, or with the last one.",
        panel=CONVERSATION,
    ),
]
Overflow = Annotated[
    OverflowChoice | None,
    value_option(
        "--overflow",
        metavar="POLICY",
        help="When the context is full: drop-oldest leaves the oldest turns out, stop refuses the "
        "message, shift is drop-oldest and lets a reply outgrow it [default: drop-oldest].",
        panel=CONVERSATION,
        parser=one_of("--overflow", OverflowChoice),
    ),
]
Markdown = Annotated[
    bool,
    typer.Option(
        "--markdown",
        help="Render replies as Markdown, on a terminal.",
        rich_help_panel=OUTPUT,
        show_default=False,
    ),
]
Think = Annotated[
    ThinkChoice | None,
    value_option(
        "--think",
        metavar="show|hide",
        help="Show reasoning between <think> marks, dim, or hide it [default: show].",
        panel=OUTPUT,
        parser=one_of("--think", ThinkChoice),
    ),
]
Quiet = Annotated[
    bool,
    typer.Option(
        "--quiet",
        "-q",
        help="Print replies, warnings and errors, and nothing else.",
        rich_help_panel=OUTPUT,
        show_default=False,
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chatting:
    """What is said, kept and shown."""

    system: options.System = None
    template: options.Template = None
    resume: Resume = None
    max_context: options.MaxContext = None
    overflow: Overflow = None
    think: Think = None
    markdown: Markdown = False
    raw_output: options.RawOutput = False
    quiet: Quiet = False
    verbose: options.Verbose = False
