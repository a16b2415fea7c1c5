"""Where the text ends: lengths, stops, the end of the context."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from llmcli.cli.options.making import (
    LENGTH,
    OUTPUT,
    flag,
    one_of,
    text_parser,
    value_option,
    whole_parser,
)

OverflowChoice = Literal["stop", "shift"]
MaxNewTokens = Annotated[
    int | None,
    value_option(
        "--max-new-tokens",
        "-n",
        metavar="N",
        help="At most N new tokens [default: the checkpoint's, else 256].",
        panel=LENGTH,
        parser=whole_parser("--max-new-tokens"),
    ),
]
Stop = Annotated[
    list[str] | None,
    value_option(
        "--stop",
        metavar="TEXT",
        help="End just before this text; may be given several times.",
        panel=LENGTH,
        parser=text_parser("--stop"),
    ),
]
IgnoreEos = Annotated[
    bool,
    flag("--ignore-eos", help="Go on past the checkpoint's own end tokens.", panel=LENGTH),
]
MaxContext = Annotated[
    int | None,
    value_option(
        "--max-context",
        metavar="N",
        help="At most N tokens in the context [default: the model's own].",
        panel=LENGTH,
        parser=whole_parser("--max-context"),
    ),
]
OverflowOption = Annotated[
    OverflowChoice | None,
    value_option(
        "--overflow",
        metavar="stop|shift",
        help="At the end of the context stop, or drop old tokens and go on [default: stop].",
        panel=LENGTH,
        parser=one_of("--overflow", OverflowChoice),
    ),
]
ShowSpecial = Annotated[
    bool,
    flag("--show-special", help="Show special tokens, except end tokens.", panel=OUTPUT),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """How long a text may get, and what happens there."""

    max_context: MaxContext = None
    overflow: OverflowOption = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """What ends the text besides its length."""

    stop: Stop = None
    ignore_eos: IgnoreEos = False
    show_special: ShowSpecial = False
