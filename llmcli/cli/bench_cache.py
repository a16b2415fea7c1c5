"""llmcli bench-cache: what the KV cache buys, measured and proved."""

from __future__ import annotations

from llmcli.cli import options
from llmcli.cli.benching import asked
from llmcli.cli.bundles import unbundled

_NOTHING = (options.Prompting(), options.Loading(), asked.Measuring(), asked.BenchDecoding())


@unbundled
def bench_cache(
    *,
    prompt: options.PromptText = None,
    file: options.PromptFile = None,
    prompting: options.Prompting,
    loading: options.Loading,
    measuring: asked.Measuring,
    decoding: asked.BenchDecoding,
    output: asked.Output = None,
    plot: asked.PlotFile = None,
    compare: asked.Compare = None,
    debug: options.Debug = False,  # noqa: ARG001
) -> int:
    """Measure what the KV cache buys, on your own checkpoint and machine.

    Every arm is fed the same tokens in turns, so that a machine whose speed drifts treats all
    alike, and their logits are compared at every step.
    """
    from llmcli.cli.benching.comparing import check_alone, compare_files
    from llmcli.cli.benching.running import Shown, bench

    if compare is not None:
        asked_too = (prompt, file, plot, prompting, loading, measuring, decoding)
        check_alone(asked_too != (None, None, None, *_NOTHING))
        return compare_files(compare, output)
    return bench(
        prompt,
        file,
        prompting=prompting,
        loading=loading,
        measuring=measuring,
        decoding=decoding,
        shown=Shown(output=output or "table", plot=plot),
    )
