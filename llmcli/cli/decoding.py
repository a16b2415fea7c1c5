"""The options of decoding beyond the common ones: filters, penalties, strategies' own settings."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated, Any

from llmcli.checkpoint.escape import printable
from llmcli.cli import options
from llmcli.cli.options import (
    EarlyStoppingChoice,
    number_option,
    one_of,
    text_parser,
    value_option,
    whole_option,
)
from llmcli.engine.settings import Flags
from llmcli.errors import UsageError

FILTERS = "Sampling, further filters"
PENALTIES = "Penalties"
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
    logit_bias: LogitBias = None
    suppress: Suppress = None
    guidance_scale: GuidanceScale = None
    negative_prompt: NegativePrompt = None
    num_beams: NumBeams = None
    num_beam_groups: NumBeamGroups = None
    diversity_penalty: DiversityPenalty = None
    length_penalty: LengthPenalty = None
    early_stopping: EarlyStopping = None
    num_return: NumReturn = None
    draft_model: DraftModel = None
    num_draft_tokens: NumDraftTokens = None
    penalty_alpha: PenaltyAlpha = None
    num_candidates: NumCandidates = None
    dola_layers: DolaLayers = None

    def flags(self) -> Flags:
        """As the engine takes them."""
        given: dict[str, Any] = {one.name: getattr(self, one.name) for one in fields(Flags)}
        lists = {key: tuple(value) for key, value in given.items() if isinstance(value, list)}
        return Flags(**given | lists)
