"""The trace view: one forward pass as tables, or one decode step with the cache and without."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING

from llmcli.cli.columns import folded, pairs, table
from llmcli.cli.inspecting.asked import Asked
from llmcli.cli.inspecting.drawing import Drawing
from llmcli.cli.inspecting.subject import Subject
from llmcli.cli.inspecting.svg import Svg, lines
from llmcli.cli.inspecting.token_words import compact, quoted
from llmcli.cli.progress import StepProgress
from llmcli.cli.sizes import in_bytes
from llmcli.errors import GenerationError
from llmcli.insight.bounds import check_between
from llmcli.insight.ranges import written
from llmcli.plurals import counted

if TYPE_CHECKING:
    from llmcli.insight.decode_step import DecodeStep, Mode
    from llmcli.insight.trace import Trace

_STREAM = 40  # columns of the tokens' names in a line


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """One of both."""

    forward: Trace | None = None
    step: DecodeStep | None = None


def _compute(subject: Subject, asked: Asked) -> Traced:
    step = asked.step
    ids = subject.prompt.ids
    check_between("--step", step, 1, subject.facts.spec.context - len(ids))
    decoder = subject.engine.loaded.decoder
    import torch

    if step is not None:
        return Traced(step=_step(subject, step))
    from llmcli.insight.trace import trace

    held = torch.tensor([ids], device=decoder.device)
    return Traced(forward=trace(decoder, held, name=subject.token_text))


def _step(subject: Subject, step: int) -> DecodeStep:
    """Generates up to the step, then runs it alone."""
    import torch

    from llmcli.cache import default_kind
    from llmcli.engine.options import GenerateOptions
    from llmcli.insight.decode_step import decode_step

    engine, asked = subject.engine, subject.loading.cache_kind
    engine.session(asked)  # refuses a kind that has no sense here
    flags = replace(subject.flags, max_new_tokens=step)
    generation = engine.generate(subject.prompt, GenerateOptions(flags=flags, cache=asked))
    with StepProgress(f"generating up to step {step}") as bar:
        for _ in generation:
            bar(len(generation.ids), step)
    if len(generation.ids) < step:
        raise GenerationError(
            f"there is no step {step}: the text ends after {len(generation.ids)} new tokens",
            hint=f"give --step 1 to {len(generation.ids)}, or another prompt",
        )
    decoder = engine.loaded.decoder
    ids = torch.tensor([[*subject.prompt.ids, *generation.ids[:step]]], device=decoder.device)
    kind = default_kind(decoder.spec)
    if asked != "auto" and asked != "none":
        kind = asked
    return decode_step(
        decoder,
        ids,
        step=step,
        kind=kind,
        ways={None: ("on", "off"), True: ("on",), False: ("off",)}[subject.loading.kv_cache],
        name=subject.token_text,
    )


def _lines(found: Traced, width: int | None) -> list[str]:
    if found.step is not None:
        return _step_lines(found.step, width)
    assert found.forward is not None
    return _forward_lines(found.forward, width)


def _forward_lines(found: Trace, width: int | None) -> list[str]:
    shapes = [
        (one.name if one.layer is None else f"  layer {one.layer}: {one.name}", _shape(one.shape))
        for one in found.values
    ]
    rows = [
        (
            str(one.layer),
            one.mixer,
            f"{one.stream:.3f}",
            f"{one.attn_added:.3f}",
            f"{one.attn_cosine:+.2f}",
            f"{one.mlp_added:.3f}",
            f"{one.mlp_cosine:+.2f}",
            _milliseconds(one.attn_seconds),
            _milliseconds(one.mlp_seconds),
            _milliseconds(one.other_seconds),
        )
        for one in found.layers
    ]
    header = ("layer", "mixer", "stream", "attn adds", "cos", "MLP adds", "cos")
    times = ("attn ms", "MLP ms", "other ms")
    legend = (
        "Lengths (L2) and cosines with the stream are means over the tokens; `stream` is from "
        "before the layer."
    )
    count = len(found.tokens)
    return [
        *folded(f"{counted(count, 'token')}: {_named(found.tokens)}", width),
        "",
        *pairs(shapes, width),
        "",
        *table((*header, *times), rows, width, left=(1,)),
        *folded(f"after the last layer the stream is {found.stream_end:.3f} long", width),
        "",
        *folded(legend, width),
        *folded(
            f"Time: {_milliseconds(found.total_seconds)} ms in all, embedding "
            f"{_milliseconds(found.embed_seconds)}, final norm and head "
            f"{_milliseconds(found.head_seconds)}.",
            width,
        ),
        *folded(
            f"Likeliest next token: {quoted(found.likeliest)}, {100 * found.likeliest_prob:.1f}%",
            width,
        ),
    ]


def _step_lines(found: DecodeStep, width: int | None) -> list[str]:
    lines = folded(
        f"Decode step {found.step} feeds {quoted(found.tokens[-1])} as token {found.length - 1} "
        f"of {found.length}, and computes what follows.",
        width,
    )
    for mode in found.modes:
        lines += ["", *_mode_lines(found, mode, width)]
    if found.difference is not None and found.spread is not None:
        off, on = (next(m for m in found.modes if m.cache == name) for name in ("off", "on"))
        lines += [
            "",
            *folded(
                f"Without the cache the step costs {off.flops / on.flops:.1f} times the FLOPs and "
                f"took {off.seconds / on.seconds:.1f} times as long. The logits differ by at most "
                f"{found.difference:.2g}, at a standard deviation of {found.spread:.2g}.",
                width,
            ),
        ]
    return lines


def _mode_lines(found: DecodeStep, mode: Mode, width: int | None) -> list[str]:
    first, last = mode.streams
    running = found.tokens[first : last + 1]
    rows = [
        ("streams that run", f"{len(running)} of {found.length}: {_named(running)}"),
        ("reused", _reused(mode)),
        ("FLOPs", f"{mode.flops:,}"),
        ("bytes moved", in_bytes(mode.bytes)),
        ("measured", f"{_milliseconds(mode.seconds)} ms"),
        ("likeliest next", quoted(mode.likeliest)),
    ]
    parts = [
        (
            one.part,
            f"{one.flops:,}",
            in_bytes(one.weight_bytes),
            in_bytes(one.cache_read),
            in_bytes(one.cache_written),
        )
        for one in mode.works
    ]
    header = ("part", "FLOPs", "weights read", "cache read", "cache written")
    return [
        f"KV cache {mode.cache}",
        "",
        *pairs(rows, width),
        "",
        *table(header, parts, width),
    ]


def _reused(mode: Mode) -> str:
    if mode.cache == "off":
        return "nothing: every key and value is computed anew"
    parts = []
    for keys, group in groupby(mode.reused, key=lambda one: one.keys):
        layers = written([one.layer for one in group])
        kept = "the state" if keys is None else f"{keys:,} keys and values"
        parts.append(f"{kept} in layers {layers}" if "-" in layers else f"{kept} in layer {layers}")
    return "; ".join(parts)


def _named(tokens: tuple[str, ...]) -> str:
    """The tokens, or the first and the last of them."""
    whole = " ".join(compact(token, 16) for token in tokens)
    if len(whole) <= _STREAM or len(tokens) < 4:
        return whole
    return f"{compact(tokens[0], 16)} {compact(tokens[1], 16)} ... {compact(tokens[-1], 16)}"


def _shape(shape: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, shape))}]"


def _milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:.3f}"


def _pictures(found: Traced) -> list[Svg]:
    if found.forward is None:
        return []
    layers = found.forward.layers
    series = [
        ("stream before", [(float(one.layer), one.stream) for one in layers]),
        ("attention adds", [(float(one.layer), one.attn_added) for one in layers]),
        ("MLP adds", [(float(one.layer), one.mlp_added) for one in layers]),
    ]
    return [lines("lengths in the residual stream", series, x="layer", y="mean L2 length")]


DRAWING = Drawing(compute=_compute, lines=_lines, pictures=_pictures)
