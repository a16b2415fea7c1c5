"""How tokens are chosen: the strategy and the settings best known."""

from __future__ import annotations

from typing import Annotated, Literal

from llmcli.cli.options.making import CHOICE, number_parser, one_of, value_option, whole_parser
from llmcli.engine.arms import NAMES as ARMS

StrategyChoice = Literal[
    "greedy", "sample", "beam", "contrastive", "dola", "prompt-lookup", "speculative"
]
Strategy = Annotated[
    StrategyChoice | None,
    value_option(
        "--strategy",
        metavar="NAME",
        help="greedy, sample, beam, contrastive, dola, prompt-lookup or speculative [default: "
        "greedy, or what the checkpoint or an option below asks for].",
        panel=CHOICE,
        parser=one_of("--strategy", StrategyChoice),
    ),
]
Temperature = Annotated[
    float | None,
    value_option(
        "--temperature",
        "-t",
        metavar="X",
        help="Above 1 more surprising, below 1 more certain; 0 is greedy.",
        panel=CHOICE,
        parser=number_parser("--temperature"),
    ),
]
TopK = Annotated[
    int | None,
    value_option(
        "--top-k",
        metavar="K",
        help="Among the K likeliest tokens; 0 is off.",
        panel=CHOICE,
        parser=whole_parser("--top-k"),
    ),
]
TopP = Annotated[
    float | None,
    value_option(
        "--top-p",
        metavar="P",
        help="Among the likeliest tokens that together reach probability P; 1 is off.",
        panel=CHOICE,
        parser=number_parser("--top-p"),
    ),
]
MinP = Annotated[
    float | None,
    value_option(
        "--min-p",
        metavar="P",
        help="Among tokens at least P times as likely as the best; 0 is off.",
        panel=CHOICE,
        parser=number_parser("--min-p"),
    ),
]
RepetitionPenalty = Annotated[
    float | None,
    value_option(
        "--repetition-penalty",
        metavar="X",
        help="Above 1, tokens already seen get less likely; 1 is off.",
        panel=CHOICE,
        parser=number_parser("--repetition-penalty"),
    ),
]
Seed = Annotated[
    int | None,
    value_option(
        "--seed",
        metavar="N",
        help="Makes sampling repeatable [default: a new one each time; -v shows it].",
        panel=CHOICE,
        parser=whole_parser("--seed"),
    ),
]
Compare = Annotated[
    str | None,
    value_option(
        "--compare",
        metavar="ARMS",
        help=f"The same prompt in several ways (A,B,C), side by side: {', '.join(ARMS)}. "
        "Some take a value, as in top-p=0.8.",
        panel=CHOICE,
    ),
]
