"""The prompt, and how its text becomes ids."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from llmcli.cli.options.making import PROMPT, flag, text_parser, value_option

PromptText = Annotated[
    str | None,
    typer.Argument(
        show_default=False,
        metavar="PROMPT",
        parser=text_parser("the prompt"),
        help="What to answer or to continue; `-` reads standard input. "
        "Piped input is added after it.",
    ),
]
PromptFile = Annotated[
    Path | None,
    value_option("--file", metavar="FILE", help="Read the prompt from a UTF-8 file.", panel=PROMPT),
]
Raw = Annotated[
    bool,
    flag("--raw", help="Continue the text as it is, without the chat template.", panel=PROMPT),
]
System = Annotated[
    str | None,
    value_option(
        "--system",
        metavar="TEXT",
        help="The system message; needs a chat template.",
        panel=PROMPT,
        parser=text_parser("--system"),
    ),
]
Template = Annotated[
    Path | None,
    value_option(
        "--template",
        metavar="FILE",
        help="A jinja chat template in place of the checkpoint's own.",
        panel=PROMPT,
    ),
]
Bos = Annotated[
    bool | None,
    flag(
        "--bos/--no-bos",
        help="Begin a raw prompt with the BOS token, or not [default: as its tokenizer does].",
        panel=PROMPT,
    ),
]
ParseSpecial = Annotated[
    bool,
    flag(
        "--parse-special",
        help="Read control tokens typed in a raw prompt as such, not as text.",
        panel=PROMPT,
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompting:
    """How the prompt's text becomes ids."""

    raw: Raw = False
    system: System = None
    template: Template = None
    bos: Bos = None
    parse_special: ParseSpecial = False
