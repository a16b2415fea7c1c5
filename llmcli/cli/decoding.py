"""The options of decoding beyond the common ones: filters, penalties, strategies' own settings."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated

from llmcli.cli import options
from llmcli.cli.options import (
    EarlyStoppingChoice,
    number_option,
    one_of,
    value_option,
    whole_option,
)
from llmcli.engine.settings import Flags

FILTERS = "Sampling, further filters"
PENALTIES = "Penalties"
STRATEGIES = "Settings of single strategies"

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
        "Prompt lookup: guess N tokens at a time [default: 5].",
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoding:
    """How tokens are chosen: one field for each of the engine's Flags."""

    max_new_tokens: options.MaxNewTokens = None
    strategy: options.Strategy = None
    temperature: options.Temperature = None
    top_k: options.TopK = None
    top_p: options.TopP = None
    min_p: options.MinP = None
    repetition_penalty: options.RepetitionPenalty = None
    seed: options.Seed = None
    typical_p: TypicalP = None
    top_n_sigma: TopNSigma = None
    epsilon_cutoff: EpsilonCutoff = None
    eta_cutoff: EtaCutoff = None
    xtc_probability: XtcProbability = None
    xtc_threshold: XtcThreshold = None
    mirostat_tau: MirostatTau = None
    mirostat_eta: MirostatEta = None
    repetition_last: RepetitionLast = None
    presence_penalty: PresencePenalty = None
    frequency_penalty: FrequencyPenalty = None
    no_repeat_ngram: NoRepeatNgram = None
    dry_multiplier: DryMultiplier = None
    dry_base: DryBase = None
    dry_allowed_length: DryAllowedLength = None
    min_new_tokens: MinNewTokens = None
    num_beams: NumBeams = None
    num_beam_groups: NumBeamGroups = None
    diversity_penalty: DiversityPenalty = None
    length_penalty: LengthPenalty = None
    num_draft_tokens: NumDraftTokens = None
    penalty_alpha: PenaltyAlpha = None
    num_candidates: NumCandidates = None
    early_stopping: EarlyStopping = None

    def flags(self) -> Flags:
        """As the engine takes them."""
        return Flags(**{one.name: getattr(self, one.name) for one in fields(Flags)})
