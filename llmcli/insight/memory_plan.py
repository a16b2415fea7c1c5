"""The plan view: what loading and running would take, worked out before anything is read.

All but the free memory is arithmetic on the spec.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Final

from llmcli.insight.facts import Facts
from llmcli.insight.kv import PREFILL_CHUNK, kind_bytes
from llmcli.insight.params import idle_parameters
from llmcli.spec import (
    DecoderSpec,
    count_parameters,
    kv_bytes_per_layer,
    parameter_shapes,
    wide_parameters,
)

if TYPE_CHECKING:
    from llmcli.cache import CacheKind

# Bytes of one number; those that llmcli does not run are there to compare.
DTYPES: Final[Mapping[str, float]] = {
    "float32": 4,
    "bfloat16": 2,
    "float16": 2,
    "int8": 1,
    "4 bits": 0.5,
}
# Those that llmcli runs, with the option that asks for each.
FLAGS: Final[Mapping[str, str]] = {
    "float32": "--dtype float32",
    "bfloat16": "--dtype bfloat16",
    "float16": "--dtype float16",
}
# Narrower and narrower: what to fall back on, one after the other.
_NARROWER: Final = ("bfloat16", "int8", "4 bits")
_PACKED: Final[tuple[CacheKind, ...]] = ("quantized-8", "quantized-4")
# A shorter text than this is of no use to anyone.
_LEAST_CONTEXT: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Where it would run. `free` is None where it is not known."""

    device: str
    device_reason: str
    dtype: str
    dtype_reason: str
    free: int | None
    bandwidth: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Width:
    """The decoder in one dtype. `fits` is None for what is not run, or with no known memory."""

    dtype: str
    weights: int
    cache: int
    peak: int
    runs: bool
    fits: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """Bytes for a text of `context` tokens. `peak`, `work` and the speed are estimates.

    `read_per_token` is what one decode step reads of weights and cache at that length, which
    bounds its speed by `machine.bandwidth`.
    """

    name: str
    machine: Machine
    context: int
    longest: int
    kind: str
    widths: tuple[Width, ...]
    weights: int
    cache: int
    work: int
    peak: int
    fits: bool | None
    advice: str
    read_per_token: int
    tokens_per_second: float | None


def plan_memory(facts: Facts, machine: Machine, *, context: int, kind: CacheKind) -> MemoryPlan:
    """`context` in tokens; `kind` is the cache's, `none` for no cache."""
    spec = facts.spec
    widths = tuple(_width(spec, name, machine, context, kind=kind) for name in DTYPES)
    chosen = next(one for one in widths if one.dtype == machine.dtype)
    element = DTYPES[machine.dtype]
    work = _work(spec, context, element, kind=kind)
    read = read_per_token(spec, element) + chosen.cache
    return MemoryPlan(
        name=facts.name,
        machine=machine,
        context=context,
        longest=spec.context,
        kind=kind,
        widths=widths,
        weights=chosen.weights,
        cache=chosen.cache,
        work=work,
        peak=chosen.peak,
        fits=chosen.fits,
        advice=_advice(spec, machine, context, chosen.fits, kind=kind),
        read_per_token=read,
        tokens_per_second=machine.bandwidth / read
        if machine.bandwidth and kind != "none"
        else None,
    )


def weight_bytes(spec: DecoderSpec, element: float) -> int:
    """Of all parameters; those that stay in float32 whatever the dtype count 4 bytes."""
    wide = wide_parameters(spec)
    shapes = parameter_shapes(spec) if wide else {}
    kept = sum(prod(shapes[name]) for name in wide)
    return int((count_parameters(spec) - kept) * element + kept * max(element, 4))


def read_per_token(spec: DecoderSpec, element: float) -> int:
    """Weights that one decode step reads: all but idle experts and other tokens' rows."""
    numbers = count_parameters(spec) - idle_parameters(spec)
    if not spec.tie_embeddings:
        numbers -= (spec.vocab_size - 1) * spec.embed_width
    return int(numbers * element)


def _width(
    spec: DecoderSpec, dtype: str, machine: Machine, context: int, *, kind: CacheKind
) -> Width:
    element, runs = DTYPES[dtype], dtype in FLAGS
    weights = weight_bytes(spec, element)
    # Keys and values stay in 16 bits where weights are narrower.
    cache = kind_bytes(spec, kind, context, max(int(element), 2))
    peak = weights + cache + _work(spec, context, element, kind=kind)
    known = runs and machine.free is not None
    fits = peak <= machine.free if known and machine.free is not None else None
    return Width(dtype=dtype, weights=weights, cache=cache, peak=peak, runs=runs, fits=fits)


def _work(spec: DecoderSpec, context: int, element: float, *, kind: CacheKind) -> int:
    """Roughly what one forward holds besides: streams, the MLP's inside, scores, logits."""
    new, width, whole = min(context, PREFILL_CHUNK), max(int(element), 2), 0
    if kind == "none":
        # All tokens' streams before and after a layer, and that layer's own keys and values.
        whole = context * (2 * spec.hidden_size * width + kv_bytes_per_layer(spec, width))
    inner = spec.intermediate_size
    if spec.experts is not None:
        inner = max(inner, spec.experts.intermediate_size)
    attention = (spec.num_heads + 2 * spec.num_kv_heads) * spec.head_dim
    streams = new * (4 * spec.hidden_size + max(attention, 3 * inner)) * width
    plain = spec.attn_softcap is not None or spec.sinks
    scores = spec.num_heads * new * context * 4 if plain else new * context
    return whole + streams + scores + 3 * spec.vocab_size * 4


def _advice(
    spec: DecoderSpec, machine: Machine, context: int, fits: bool | None, *, kind: CacheKind
) -> str:
    if machine.free is None:
        return "how much memory is free is not known here"
    if fits:
        return "it fits"
    below = [one for one in _NARROWER if DTYPES[one] < DTYPES[machine.dtype] and one in FLAGS]
    names = [machine.dtype, *below]
    packed = _PACKED[_PACKED.index(kind) + 1 :] if kind in _PACKED else _PACKED
    kinds = [kind] if kind == "none" else [kind, *packed]
    for other in kinds:
        for name in names:
            if _width(spec, name, machine, context, kind=other).fits:
                flags = [FLAGS[name]] if name != machine.dtype else []
                flags += [f"--cache {other}"] if other != kind else []
                return f"{' and '.join(flags)} would make it fit"
    for name in names:
        longest = _longest(spec, name, machine, kind=kind)
        if longest is not None and longest < context:
            flag = f" and {FLAGS[name]}" if name != machine.dtype else ""
            text = "a prompt and --max-new-tokens that together stay within"
            return f"{text} {longest:,} tokens{flag} would make it fit"
    least = min(FLAGS, key=lambda one: DTYPES[one])
    size = weight_bytes(spec, DTYPES[least])
    return f"no flag makes it fit: in {least} the weights alone are {size:,} bytes"


def _longest(spec: DecoderSpec, dtype: str, machine: Machine, *, kind: CacheKind) -> int | None:
    """The longest text that fits, by halving; None where not even a short one does."""
    low, high = min(_LEAST_CONTEXT, spec.context), spec.context
    if not _width(spec, dtype, machine, low, kind=kind).fits:
        return None
    while low < high:
        middle = (low + high + 1) // 2
        if _width(spec, dtype, machine, middle, kind=kind).fits:
            low = middle
        else:
            high = middle - 1
    return low
