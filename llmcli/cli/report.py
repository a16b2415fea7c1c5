"""What a run reports besides its text: -v lines, the --json object, logprob listings.

Returns plain strings and values; it prints nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, get_args

from llmcli import __version__
from llmcli.acquire.resolve import VARIABLE, Resolved
from llmcli.cli.explaining import steps_as_json
from llmcli.cli.running import Request, Run
from llmcli.engine.settings import Settings
from llmcli.plurals import counted
from llmcli.text.grammar import GrammarKind

if TYPE_CHECKING:
    from llmcli.engine.engine import Engine
    from llmcli.engine.stats import Stats


def setup_lines(run: Run) -> Iterator[str]:
    """Before the text: what is used, and why."""
    yield from machine_lines(run.resolved, run.engine)
    yield cache_line(run.request, run.engine, _cache(run))
    generation = run.generation
    yield from choice_lines(run.request, run.engine, generation.settings, generation.processors)
    kind = "chat template" if run.generation.prompt.is_chat else "raw text"
    yield f"prompt: {counted(len(run.generation.prompt.ids), 'token')}, {kind}"


def machine_lines(resolved: Resolved, engine: Engine) -> Iterator[str]:
    """Which checkpoint, and where it runs."""
    loaded = engine.loaded
    dtype = str(loaded.decoder.dtype).removeprefix("torch.")
    yield f"model: {resolved.name} ({loaded.family}) from {resolved.path}"
    yield f"device: {loaded.decoder.device} ({loaded.device_reason})"
    yield f"dtype: {dtype} ({loaded.dtype_reason})"
    if loaded.quantized is not None:
        yield f"weights: quantised to {loaded.quantized} while loading (asked for)"
    if loaded.form is not None:
        yield f"weights: quantised in the file, mostly to {loaded.form.bits} bits"
    yield f"steps: {loaded.kernels}"


def stop_ids_line(engine: Engine, *, ignored: bool) -> str:
    """Every id that ends a reply, with who says so."""
    ending = ", ".join(f"{s.id} {s.text!r} ({' + '.join(s.sources)})" for s in engine.stop_ids)
    return f"stop ids: {ending or 'none'}{' (ignored)' if ignored else ''}"


def cache_line(request: Request, engine: Engine, kind: str) -> str:
    """What keeps the tokens, how many there may be, and what happens then."""
    context = request.context
    return (
        f"cache: {kind}; context: {context.max_context or engine.loaded.spec.context} tokens, "
        f"at its end {context.overflow or 'stop'}"
    )


def choice_lines(
    request: Request, engine: Engine, settings: Settings, processors: Sequence[str]
) -> Iterator[str]:
    """How tokens are chosen, and which of them end a text."""
    for name, setting in settings.used.items():
        yield f"{name}: {_told(setting.value)} ({setting.source})"
    if (grammar := request.grammar) is not None:
        yield f"{grammar.kind}: {grammar.name}"
    yield f"processors: {', '.join(processors) or 'none'}"
    yield stop_ids_line(engine, ignored=request.ending.ignore_eos)


def statistics_lines(run: Run) -> Iterator[str]:
    """After the text: counts, rates and bytes."""
    generation, stats = run.generation, run.generation.stats
    yield (
        f"prefill: {_prefilled(stats)}, {_rate(stats.prefill_rate)}, "
        f"time to first token {_seconds(stats.first_token_seconds)}"
    )
    yield (
        f"decode: {counted(stats.new_tokens, 'token')}, {_rate(stats.decode_rate)}, "
        f"finish reason: {generation.finish_reason}{_matched(run)}"
    )
    if (grammar := run.request.grammar) is not None:
        yield f"{grammar.kind}: {'kept' if generation.satisfied else 'cut off before its end'}"
    if (found := generation.acceptance) is not None:
        yield (
            f"guesses: {found.accepted} of {found.proposed} kept{_share(found.rate)}, "
            f"{found.forwards} forwards"
        )
    if stats.dropped_tokens:
        yield f"shift: {counted(stats.dropped_tokens, 'token')} dropped from the context"
    peak = stats.peak_memory_bytes
    yield (
        f"load: {stats.load_seconds:.2f} s, cache {_megabytes(stats.cache_bytes)}, "
        f"peak memory {_megabytes(peak) if peak is not None else 'unknown'}"
    )


def logprob_lines(run: Run) -> Iterator[str]:
    """One line a new token: its text, its logprob, and the likeliest tokens at that place."""
    name = run.engine.tokenizer.token_text
    for token in run.generation.tokens:
        likeliest = "  ".join(f"{name(id_)!r} {logprob:.3f}" for id_, logprob in token.top)
        yield f"{name(token.id)!r} {token.logprob:.3f}" + (f"  |  {likeliest}" if token.top else "")


def as_json(run: Run) -> dict[str, Any]:
    """Everything about one generation. `logprobs` are natural logarithms, before processors."""
    generation, stats = run.generation, run.generation.stats
    name = run.engine.tokenizer.token_text
    result: dict[str, Any] = {
        "prompt": generation.prompt.text,
        "prompt_ids": list(generation.prompt.ids),
        "text": generation.text,
        "ids": generation.ids,
        "logprobs": [token.logprob for token in generation.tokens],
        "finish_reason": generation.finish_reason,
        "stop_string": generation.matched_stop,
        "satisfied": generation.satisfied,
        "prefilled_tokens": stats.prefilled_tokens,
        "timings": {
            "load_seconds": stats.load_seconds,
            "first_token_seconds": stats.first_token_seconds,
            "decode_seconds": stats.decode_seconds,
            "prefill_tokens_per_second": stats.prefill_rate,
            "decode_tokens_per_second": stats.decode_rate,
        },
        "processors": list(generation.processors),
        "cache": _cache(run),
        "cache_bytes": stats.cache_bytes,
        "dropped_tokens": stats.dropped_tokens,
        "peak_memory_bytes": stats.peak_memory_bytes,
        "options": _options(run),
        "version": __version__,
    }
    if (guessed := generation.acceptance) is not None:
        result["guesses"] = {**asdict(guessed), "rate": guessed.rate}
    if generation.settings.strategy == "beam":
        result["sequences"] = [asdict(one) for one in generation.sequences]
    if run.request.logprobs:
        result["top_logprobs"] = [
            [{"id": id_, "token": name(id_), "logprob": logprob} for id_, logprob in token.top]
            for token in generation.tokens
        ]
    if generation.explanation is not None:
        result["explain"] = steps_as_json(generation.explanation, name)
    return result


def blocks(run: Run, *, echo: bool) -> Iterator[str]:
    """The best texts of a beam search, each under a line that tells its place and score."""
    found = run.generation.sequences
    before = run.generation.prompt_text if echo else ""
    for place, one in enumerate(found, start=1):
        heading = f"== {place}/{len(found)} score {one.score:.4f} {one.finish_reason} =="
        yield f"{heading}\n{before}{one.text}"


def _options(run: Run) -> dict[str, dict[str, Any]]:
    """Every option's effective value and its source."""
    request, loaded = run.request, run.engine.loaded
    loading, prompting, ending = request.loading, request.prompting, request.ending
    by_variable = loading.model is None and os.environ.get(VARIABLE)
    is_chat = run.generation.prompt.is_chat
    return {
        "model": {
            "value": run.resolved.name,
            "path": str(run.resolved.path),
            "source": VARIABLE if by_variable else _source(loading.model),
        },
        **{
            name: {"value": setting.value, "source": setting.source}
            for name, setting in run.generation.settings.used.items()
        },
        "raw": {
            "value": not is_chat,
            "source": "flag" if prompting.raw else "chat template" if is_chat else "built-in",
        },
        "system": _option(prompting.system, None),
        "template": _option(prompting.template and str(prompting.template), None),
        "bos": _option(prompting.bos, None),
        "parse_special": _option(prompting.parse_special or None, False),
        "stop": {
            "value": list(run.generation.stop_strings),
            "source": "flag"
            if ending.stop
            else "generation_config.json"
            if run.generation.stop_strings
            else "built-in",
        },
        "stop_ids": {
            "value": [stop.id for stop in run.engine.stop_ids],
            "source": {str(stop.id): list(stop.sources) for stop in run.engine.stop_ids},
        },
        **_grammar(run),
        "max_context": _option(request.context.max_context, loaded.spec.context),
        "overflow": _option(request.context.overflow, "stop"),
        "ignore_eos": _option(ending.ignore_eos or None, False),
        "show_special": _option(ending.show_special or None, False),
        "kv_cache": _option(loading.kv_cache, True),
        "cache": {"value": _cache(run), "source": _source(loading.cache)},
        "device": {
            "value": str(loaded.decoder.device),
            "source": _source(loading.device),
            "reason": loaded.device_reason,
        },
        "dtype": {
            "value": _dtype(run),
            "source": _source(loading.dtype),
            "reason": loaded.dtype_reason,
        },
        "threads": _option(loading.threads, None),
        "quantize": _option(loading.quantize, None),
        "kernels": {
            "value": loading.kernels or "auto",
            "source": _source(loading.kernels),
            "reason": loaded.kernels,
        },
        "logprobs": _option(request.logprobs, None),
    }


def _grammar(run: Run) -> dict[str, dict[str, Any]]:
    grammar = run.request.grammar
    return {
        kind.replace("-", "_"): _option(
            grammar.name if grammar and grammar.kind == kind else None, None
        )
        for kind in get_args(GrammarKind)
    }


def _told(value: object) -> str:
    """A setting's value in a line; tokens by their text and id."""
    if not isinstance(value, list):
        return str(value)
    return ", ".join(
        f"{one['token']!r} ({one['id']})" + (f" {one['bias']:+g}" if "bias" in one else "")
        for one in value
    )


def _option(given: object, otherwise: object) -> dict[str, Any]:
    value = otherwise if given is None else given
    return {"value": value, "source": _source(given)}


def _source(given: object) -> str:
    """None is what a flag is that was not given; a 0 or a False was."""
    return "built-in" if given is None else "flag"


def _dtype(run: Run) -> str:
    return str(run.engine.loaded.decoder.dtype).removeprefix("torch.")


def _cache(run: Run) -> str:
    return run.generation.cache_kind


def _prefilled(stats: Stats) -> str:
    """How many prompt tokens were computed, and how many a cache held already."""
    kept = stats.prompt_tokens - stats.prefilled_tokens if stats.new_tokens else 0
    if not kept:
        return counted(stats.prompt_tokens, "token")
    return f"{stats.prefilled_tokens:,} of {counted(stats.prompt_tokens, 'token')}, {kept} kept"


def _matched(run: Run) -> str:
    stop = run.generation.matched_stop
    return f" (stop string {stop!r})" if stop is not None else ""


def _rate(rate: float | None) -> str:
    return f"{rate:.1f} tok/s" if rate is not None else "-"


def _share(rate: float | None) -> str:
    return f" ({100 * rate:.0f} %)" if rate is not None else ""


def _seconds(seconds: float | None) -> str:
    return f"{seconds:.3f} s" if seconds is not None else "-"


def _megabytes(count: int) -> str:
    return f"{count / 1e6:.1f} MB"
