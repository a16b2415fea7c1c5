"""The bundle of everything that decides how tokens are chosen."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from llmcli.cli.options import choosing, ending, filters, penalties, strategies
from llmcli.engine.flags import Flags


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoding:
    """How tokens are chosen: one field for each of the engine's Flags."""

    max_new_tokens: ending.MaxNewTokens = None
    strategy: choosing.Strategy = None
    temperature: choosing.Temperature = None
    top_k: choosing.TopK = None
    top_p: choosing.TopP = None
    min_p: choosing.MinP = None
    repetition_penalty: choosing.RepetitionPenalty = None
    seed: choosing.Seed = None
    typical_p: filters.TypicalP = None
    top_n_sigma: filters.TopNSigma = None
    epsilon_cutoff: filters.EpsilonCutoff = None
    eta_cutoff: filters.EtaCutoff = None
    xtc_probability: filters.XtcProbability = None
    xtc_threshold: filters.XtcThreshold = None
    mirostat_tau: filters.MirostatTau = None
    mirostat_eta: filters.MirostatEta = None
    repetition_last: penalties.RepetitionLast = None
    presence_penalty: penalties.PresencePenalty = None
    frequency_penalty: penalties.FrequencyPenalty = None
    no_repeat_ngram: penalties.NoRepeatNgram = None
    dry_multiplier: penalties.DryMultiplier = None
    dry_base: penalties.DryBase = None
    dry_allowed_length: penalties.DryAllowedLength = None
    min_new_tokens: penalties.MinNewTokens = None
    logit_bias: penalties.LogitBias = None
    suppress: penalties.Suppress = None
    guidance_scale: strategies.GuidanceScale = None
    negative_prompt: strategies.NegativePrompt = None
    num_beams: strategies.NumBeams = None
    num_beam_groups: strategies.NumBeamGroups = None
    diversity_penalty: strategies.DiversityPenalty = None
    length_penalty: strategies.LengthPenalty = None
    early_stopping: strategies.EarlyStopping = None
    num_return: strategies.NumReturn = None
    draft_model: strategies.DraftModel = None
    num_draft_tokens: strategies.NumDraftTokens = None
    penalty_alpha: strategies.PenaltyAlpha = None
    num_candidates: strategies.NumCandidates = None
    dola_layers: strategies.DolaLayers = None

    def flags(self) -> Flags:
        """As the engine takes them."""
        given: dict[str, Any] = {one.name: getattr(self, one.name) for one in fields(Flags)}
        lists = {key: tuple(value) for key, value in given.items() if isinstance(value, list)}
        return Flags(**given | lists)
