"""llmcli generate: stream the answer to a prompt."""

from __future__ import annotations

from llmcli.cli import options


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
    echo: options.Echo = False,
    show_special: options.ShowSpecial = False,
    raw_output: options.RawOutput = False,
    json: options.Json = False,
    logprobs: options.Logprobs = None,
    verbose: options.Verbose = False,
    debug: options.Debug = False,  # noqa: ARG001
    version: options.Version = False,  # noqa: ARG001
) -> int:
    """Answer a prompt, or continue a text.

    The text streams to standard output, and nothing else goes there. A checkpoint with a chat
    template answers; a base model, or any model with --raw, continues.
    """
    from llmcli.cli.answering import Show, answer
    from llmcli.cli.prompt_input import read_prompt
    from llmcli.cli.running import Request
    from llmcli.engine.settings import Flags

    show = Show(echo=echo, json=json, raw_output=raw_output, verbose=verbose)
    flags = Flags(
        strategy=strategy,
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        repetition_penalty=repetition_penalty,
        seed=seed,
    )
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
