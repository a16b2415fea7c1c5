"""Settings of single strategies."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from llmcli.checkpoint.escape import printable
from llmcli.cli.options.making import number_option, one_of, text_parser, value_option, whole_option
from llmcli.errors import UsageError

EarlyStoppingChoice = Literal["on", "off", "never"]
STRATEGIES = "Settings of single strategies"


def _layers(text: str) -> str | tuple[int, ...]:
    if text in ("low", "high"):
        return text
    try:
        return tuple(int(one) for one in text.split(","))
    except ValueError:
        raise UsageError(
            f"--dola-layers is {printable(repr(text), 60)}; it must be low, high or numbers "
            "with commas between",
            hint="such as --dola-layers 0,2,4; 0 is the embedding",
        ) from None


GuidanceScale = Annotated[
    float | None,
    number_option(
        "--guidance-scale",
        "X",
        "Greedy and sampling: towards the prompt, away from the negative one; 1 is off.",
        STRATEGIES,
    ),
]
NegativePrompt = Annotated[
    str | None,
    value_option(
        "--negative-prompt",
        metavar="TEXT",
        help="What guidance leads away from [default: the prompt's last token alone].",
        panel=STRATEGIES,
        parser=text_parser("--negative-prompt"),
    ),
]
NumReturn = Annotated[
    int | None,
    whole_option(
        "--num-return", "N", "Beam search: print the N best texts [default: 1].", STRATEGIES
    ),
]
DraftModel = Annotated[
    str | None,
    value_option(
        "--draft-model",
        metavar="MODEL",
        help="Speculative decoding: a smaller model with the same tokenizer that guesses.",
        panel=STRATEGIES,
    ),
]
DolaLayers = Annotated[
    Any,
    value_option(
        "--dola-layers",
        metavar="low|high|1,3,..",
        help="DoLa: the earlier layers to contrast with, 0 being the embedding [default: low].",
        panel=STRATEGIES,
        parser=_layers,
    ),
]
NumBeams = Annotated[
    int | None,
    whole_option("--num-beams", "N", "Beam search: keep N continuations [default: 4].", STRATEGIES),
]
NumBeamGroups = Annotated[
    int | None,
    whole_option(
        "--num-beam-groups",
        "N",
        "Beam search: in N groups that avoid each other [default: 1].",
        STRATEGIES,
    ),
]
DiversityPenalty = Annotated[
    float | None,
    number_option(
        "--diversity-penalty",
        "X",
        "Beam search: how much groups avoid each other's tokens.",
        STRATEGIES,
    ),
]
LengthPenalty = Annotated[
    float | None,
    number_option(
        "--length-penalty",
        "X",
        "Beam search: above 0 favours long texts, below 0 short ones [default: 1].",
        STRATEGIES,
    ),
]
NumDraftTokens = Annotated[
    int | None,
    whole_option(
        "--num-draft-tokens",
        "N",
        "Prompt lookup, speculative: guess N tokens at a time [default: 5].",
        STRATEGIES,
    ),
]
PenaltyAlpha = Annotated[
    float | None,
    number_option(
        "--penalty-alpha",
        "X",
        "Contrastive search: weight of not repeating the past, 0 to 1 [default: 0.6].",
        STRATEGIES,
    ),
]
NumCandidates = Annotated[
    int | None,
    whole_option(
        "--num-candidates",
        "N",
        "Contrastive search: among the N likeliest tokens [default: 4].",
        STRATEGIES,
    ),
]
EarlyStopping = Annotated[
    EarlyStoppingChoice | None,
    value_option(
        "--early-stopping",
        metavar="on|off|never",
        help="Beam search: end once enough are finished (on), once the best cannot win at its "
        "length (off), or at any length (never) [default: off].",
        panel=STRATEGIES,
        parser=one_of("--early-stopping", EarlyStoppingChoice),
    ),
]
