"""Penalties, and tokens that are made likelier or never said."""

from __future__ import annotations

from typing import Annotated

from llmcli.cli.options.making import number_option, text_parser, value_option, whole_option

PENALTIES = "Penalties"
RepetitionLast = Annotated[
    int | None,
    whole_option(
        "--repetition-last",
        "N",
        "Penalise repetition among the last N tokens only; 0 is all.",
        PENALTIES,
    ),
]
PresencePenalty = Annotated[
    float | None,
    number_option(
        "--presence-penalty",
        "X",
        "Take X off the logit of every token already generated.",
        PENALTIES,
    ),
]
FrequencyPenalty = Annotated[
    float | None,
    number_option(
        "--frequency-penalty", "X", "Take X off for each time that it was generated.", PENALTIES
    ),
]
NoRepeatNgram = Annotated[
    int | None,
    whole_option("--no-repeat-ngram", "N", "Never repeat a run of N tokens; 0 is off.", PENALTIES),
]
DryMultiplier = Annotated[
    float | None,
    number_option(
        "--dry-multiplier",
        "X",
        "Penalise what would prolong a repetition, more the longer it is; 0 is off.",
        PENALTIES,
    ),
]
DryBase = Annotated[
    float | None,
    number_option(
        "--dry-base", "X", "How fast that penalty grows with the length [default: 1.75].", PENALTIES
    ),
]
DryAllowedLength = Annotated[
    int | None,
    whole_option(
        "--dry-allowed-length", "N", "Repetitions shorter than N are free [default: 2].", PENALTIES
    ),
]
MinNewTokens = Annotated[
    int | None,
    whole_option("--min-new-tokens", "N", "No end token before N new tokens.", PENALTIES),
]
LogitBias = Annotated[
    list[str] | None,
    value_option(
        "--logit-bias",
        metavar="TOKEN=X",
        help="Add X to the logit of a token: its id, or its text; repeatable.",
        panel=PENALTIES,
        parser=text_parser("--logit-bias"),
    ),
]
Suppress = Annotated[
    list[str] | None,
    value_option(
        "--suppress",
        metavar="TOKEN",
        help="Never say a token: its id, or its text; repeatable.",
        panel=PENALTIES,
        parser=text_parser("--suppress"),
    ),
]
