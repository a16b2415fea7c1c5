"""Further filters of sampling."""

from __future__ import annotations

from typing import Annotated

from llmcli.cli.options.making import number_option

FILTERS = "Sampling, further filters"
TypicalP = Annotated[
    float | None,
    number_option(
        "--typical-p",
        "P",
        "Among the tokens whose surprise is nearest the average, up to P; 1 is off.",
        FILTERS,
    ),
]
TopNSigma = Annotated[
    float | None,
    number_option(
        "--top-n-sigma",
        "N",
        "Among logits within N standard deviations of the best; 0 is off.",
        FILTERS,
    ),
]
EpsilonCutoff = Annotated[
    float | None,
    number_option("--epsilon-cutoff", "P", "Among tokens at least P likely; 0 is off.", FILTERS),
]
EtaCutoff = Annotated[
    float | None,
    number_option(
        "--eta-cutoff",
        "P",
        "The same with a bar that falls as the entropy rises; 0 is off.",
        FILTERS,
    ),
]
XtcProbability = Annotated[
    float | None,
    number_option(
        "--xtc-probability",
        "P",
        "With chance P, leave out all likely tokens but the least likely of them.",
        FILTERS,
    ),
]
XtcThreshold = Annotated[
    float | None,
    number_option(
        "--xtc-threshold", "P", "What counts as likely for that [default: 0.1].", FILTERS
    ),
]
MirostatTau = Annotated[
    float | None,
    number_option(
        "--mirostat-tau",
        "BITS",
        "Aim at a mean surprise of so many bits (mirostat 2); 0 is off.",
        FILTERS,
    ),
]
MirostatEta = Annotated[
    float | None,
    number_option(
        "--mirostat-eta", "X", "How fast mirostat corrects itself [default: 0.1].", FILTERS
    ),
]
