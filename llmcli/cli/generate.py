"""llmcli generate: stream the answer to a prompt."""

from __future__ import annotations

from functools import partial

from llmcli.cli import options
from llmcli.cli.batching import Batching
from llmcli.cli.bundles import unbundled
from llmcli.cli.constraining import Constraining
from llmcli.cli.explaining import Explaining
from llmcli.cli.keeping import Keeping
from llmcli.cli.options.decoding import Decoding
from llmcli.engine.flags import Flags


@unbundled
def generate(
    *,
    prompt: options.PromptText = None,
    file: options.PromptFile = None,
    prompting: options.Prompting,
    loading: options.Loading,
    keeping: Keeping,
    decoding: Decoding,
    constraining: Constraining,
    context: options.Context,
    batching: Batching,
    ending: options.Ending,
    compare: options.Compare = None,
    echo: options.Echo = False,
    raw_output: options.RawOutput = False,
    json: options.Json = False,
    logprobs: options.Logprobs = None,
    explaining: Explaining,
    receipt: options.Receipt = None,
    verbose: options.Verbose = False,
    debug: options.Debug = False,  # noqa: ARG001
    version: options.Version = False,  # noqa: ARG001
) -> int:
    """Answer a prompt, or continue a text.

    The text streams to standard output, and nothing else goes there. A checkpoint with a chat
    template answers; a base model, or any model with --raw, continues.
    """
    from llmcli.cli.answering import Show, answer
    from llmcli.cli.comparing import compare_arms
    from llmcli.cli.many import answer_many
    from llmcli.cli.prompt_input import read_prompt
    from llmcli.cli.running import Request

    show = Show(echo=echo, json=json, raw_output=raw_output, verbose=verbose)
    request = Request(
        flags=Flags() if compare is not None else decoding.flags(),
        loading=loading,
        keeping=keeping,
        prompting=prompting,
        ending=ending,
        context=context,
        grammar=constraining.read(),
        logprobs=logprobs,
        explain=explaining.count(),
        receipt=receipt,
    )
    read = partial(read_prompt, prompt, file)
    many = batching.asked(
        prompt=prompt is not None,
        file=file is not None,
        compare=compare is not None,
        echo=echo,
        json=json,
        raw_output=raw_output,
        logprobs=logprobs is not None,
        explain=explaining.explain,
        receipt=receipt is not None,
        num_return=(decoding.num_return or 1) > 1,
    )
    if many:
        keeping.refuse("a batch")
        return answer_many(request, batching, read, show)
    if compare is not None:
        keeping.refuse("--compare")
        return compare_arms(compare, decoding.flags(), request, read, show)
    return answer(request, read, show)
