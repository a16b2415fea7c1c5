"""llmcli generate: stream the answer to a prompt."""

from __future__ import annotations

from dataclasses import fields

from llmcli.cli import decoding, options


def generate(
    prompt: options.PromptText = None,
    file: options.PromptFile = None,
    raw: options.Raw = False,
    system: options.System = None,
    bos: options.Bos = None,
    parse_special: options.ParseSpecial = False,
    model: options.Model = None,
    device: options.Device = None,
    dtype: options.Dtype = None,
    threads: options.Threads = None,
    kv_cache: options.KvCache = None,
    max_new_tokens: options.MaxNewTokens = None,
    stop: options.Stop = None,
    ignore_eos: options.IgnoreEos = False,
    strategy: options.Strategy = None,
    temperature: options.Temperature = None,
    top_k: options.TopK = None,
    top_p: options.TopP = None,
    min_p: options.MinP = None,
    repetition_penalty: options.RepetitionPenalty = None,
    seed: options.Seed = None,
    typical_p: decoding.TypicalP = None,
    top_n_sigma: decoding.TopNSigma = None,
    epsilon_cutoff: decoding.EpsilonCutoff = None,
    eta_cutoff: decoding.EtaCutoff = None,
    xtc_probability: decoding.XtcProbability = None,
    xtc_threshold: decoding.XtcThreshold = None,
    mirostat_tau: decoding.MirostatTau = None,
    mirostat_eta: decoding.MirostatEta = None,
    repetition_last: decoding.RepetitionLast = None,
    presence_penalty: decoding.PresencePenalty = None,
    frequency_penalty: decoding.FrequencyPenalty = None,
    no_repeat_ngram: decoding.NoRepeatNgram = None,
    dry_multiplier: decoding.DryMultiplier = None,
    dry_base: decoding.DryBase = None,
    dry_allowed_length: decoding.DryAllowedLength = None,
    min_new_tokens: decoding.MinNewTokens = None,
    num_beams: decoding.NumBeams = None,
    num_beam_groups: decoding.NumBeamGroups = None,
    diversity_penalty: decoding.DiversityPenalty = None,
    length_penalty: decoding.LengthPenalty = None,
    num_draft_tokens: decoding.NumDraftTokens = None,
    penalty_alpha: decoding.PenaltyAlpha = None,
    num_candidates: decoding.NumCandidates = None,
    early_stopping: decoding.EarlyStopping = None,
    echo: options.Echo = False,
    show_special: options.ShowSpecial = False,
    raw_output: options.RawOutput = False,
    json: options.Json = False,
    logprobs: options.Logprobs = None,
    verbose: options.Verbose = False,
    debug: options.Debug = False,
    version: options.Version = False,
) -> int:
    """Answer a prompt, or continue a text.

    The text streams to standard output, and nothing else goes there. A checkpoint with a chat
    template answers; a base model, or any model with --raw, continues.
    """
    given = locals()
    from llmcli.cli.answering import Show, answer
    from llmcli.cli.prompt_input import read_prompt
    from llmcli.cli.running import Request
    from llmcli.engine.settings import Flags

    show = Show(echo=echo, json=json, raw_output=raw_output, verbose=verbose)
    flags = Flags(**{one.name: given[one.name] for one in fields(Flags)})
    request = Request(
        flags=flags,
        model=model,
        raw=raw,
        system=system,
        bos=bos,
        parse_special=parse_special,
        stop=tuple(stop or ()),
        ignore_eos=ignore_eos,
        show_special=show_special,
        kv_cache=kv_cache,
        device=device,
        dtype=dtype,
        threads=threads,
        logprobs=logprobs,
    )
    return answer(request, lambda: read_prompt(prompt, file), show)
