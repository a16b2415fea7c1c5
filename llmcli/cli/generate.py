"""llmcli generate: stream the answer to a prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmcli.cli import options, terminal

if TYPE_CHECKING:
    from llmcli.engine.generation import Generation

_INTERRUPTED = 130


def generate(
    prompt: options.PromptText = None,
    file: options.PromptFile = None,
    model: options.Model = None,
    raw: options.Raw = False,
    system: options.System = None,
    bos: options.Bos = None,
    parse_special: options.ParseSpecial = False,
    max_new_tokens: options.MaxNewTokens = None,
    temperature: options.Temperature = None,
    top_k: options.TopK = None,
    top_p: options.TopP = None,
    min_p: options.MinP = None,
    repetition_penalty: options.RepetitionPenalty = None,
    seed: options.Seed = None,
    stop: options.Stop = None,
    ignore_eos: options.IgnoreEos = False,
    show_special: options.ShowSpecial = False,
    strategy: options.Strategy = None,
    kv_cache: options.KvCache = None,
    device: options.Device = None,
    dtype: options.Dtype = None,
    threads: options.Threads = None,
    echo: options.Echo = False,
    json: options.Json = False,
    logprobs: options.Logprobs = None,
    raw_output: options.RawOutput = False,
    verbose: options.Verbose = False,
    debug: options.Debug = False,  # noqa: ARG001
    version: options.Version = False,  # noqa: ARG001
) -> int:
    """Answer a prompt, or continue a text with --raw; the text streams to stdout."""
    from llmcli.cli.prompt_input import read_prompt
    from llmcli.cli.running import Request, start
    from llmcli.engine.settings import Flags

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
        text=read_prompt(prompt, file),
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
    run = start(request, verbose=verbose)
    code = _stream(run.generation, run.close, quiet=json, echo=echo, raw_output=raw_output)
    run.report(json=json, echo=echo, logprobs=logprobs, verbose=verbose)
    return code
