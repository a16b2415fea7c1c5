"""llmcli generate: stream the answer to a prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmcli.cli import options, terminal
from llmcli.errors import LlmcliError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from llmcli.cli.running import Run

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
    from llmcli.cli import report
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
    run = start(request)
    if verbose:
        _tell(report.setup_lines(run))
    code = _stream(run, echo=echo, raw_output=raw_output, quiet=json)
    if json:
        terminal.print_json(report.as_json(run))
    elif logprobs is not None:
        _tell(report.logprob_lines(run))
    if verbose:
        _tell(report.statistics_lines(run))
    return code


def _tell(lines: Iterable[str]) -> None:
    for line in lines:
        terminal.note(line)


def _stream(run: Run, *, echo: bool, raw_output: bool, quiet: bool) -> int:
    """Write the text as it comes. Whatever interrupts it, what was generated is written."""
    generation = run.generation
    answer = terminal.Answer(raw=raw_output)
    write = _drop if quiet else answer.write
    code = 0
    try:
        if echo:
            write(generation.prompt_text)
        for piece in generation:
            write(piece)
    except KeyboardInterrupt:
        write(generation.held_back())
        code = _INTERRUPTED
    except LlmcliError:
        if generation.text and not quiet:
            write(generation.held_back())
            answer.end()
        raise
    finally:
        run.prefill.finish()
    if not quiet:
        answer.end()
    return code


def _drop(_piece: str) -> None:
    """--json prints the text only within its object."""
