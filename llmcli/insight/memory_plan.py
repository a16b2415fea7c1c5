"""The plan view: what loading and running would take, worked out before anything is read.

All but the free memory is arithmetic on the spec and the headers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from llmcli.insight.facts import Facts
from llmcli.insight.holding import Computing, Holding, holdings, read_per_token
from llmcli.insight.kernel_work import Kernels, kernel_bytes, tokens_together
from llmcli.insight.kv import PREFILL_CHUNK, kind_bytes
from llmcli.spec import DecoderSpec, PackingKind, kv_bytes_per_layer

if TYPE_CHECKING:
    from llmcli.cache import CacheKind

# Narrower and narrower: what to fall back on, one after the other.
_NARROWER: Final = ("--dtype bfloat16", "--quantize int8", "--quantize int4")
_PACKED: Final[tuple[CacheKind, ...]] = ("quantized-8", "quantized-4")
# A shorter text than this is of no use to anyone.
_LEAST_CONTEXT: Final = 64
# A block of a matrix in float32, which is made where it is held in another form.
_BLOCK_BYTES: Final = 8 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Where it would run. `free` is None where it is not known.

    `keeps_narrow`: matrices of a 16-bit file stay in 16 bits, although it computes in float32.
    `quantized` is how it would compute with matrices that --quantize packs. `steps` says in what
    a step runs; `kernels` are what runs whole steps in float32, None where nothing does.
    """

    device: str
    device_reason: str
    dtype: str
    dtype_reason: str
    keeps_narrow: bool
    quantized: Computing
    steps: str
    kernels: Kernels | None
    free: int | None
    bandwidth: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Width:
    """One way to hold the weights. `fits` is None with no known memory."""

    dtype: str
    matrices: str
    weights: int
    cache: int
    peak: int
    fits: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """Bytes for a text of `context` tokens. `peak`, `work` and the speed are estimates.

    `widths` are all ways to hold the weights, first the one that runs as it is asked for; then
    come its sizes again. `read_per_token` is what one decode step reads of weights and cache at
    that length, which bounds its speed by `machine.bandwidth`.
    """

    name: str
    machine: Machine
    context: int
    longest: int
    kind: str
    widths: tuple[Width, ...]
    matrices: str
    weights: int
    cache: int
    work: int
    peak: int
    fits: bool | None
    advice: str
    read_per_token: int
    tokens_per_second: float | None


def plan_memory(
    facts: Facts,
    machine: Machine,
    *,
    context: int,
    kind: CacheKind,
    quantize: PackingKind | None = None,
) -> MemoryPlan:
    """`context` in tokens; `kind` is the cache's, `none` for no cache.

    `quantize` is asked of a checkpoint that is not quantised.
    """
    spec = facts.spec
    plain = Computing(machine.dtype, machine.keeps_narrow)
    ways = holdings(facts, plain, machine.quantized, quantize=quantize)
    room = _Room(spec, machine.free, machine.kernels, kind, context)
    widths = tuple(map(room.width, ways))
    chosen = widths[0]
    read = read_per_token(spec, ways[0].sizes) + chosen.cache
    return MemoryPlan(
        name=facts.name,
        machine=machine,
        context=context,
        longest=spec.context,
        kind=kind,
        widths=widths,
        matrices=chosen.matrices,
        weights=chosen.weights,
        cache=chosen.cache,
        work=chosen.peak - chosen.weights - chosen.cache,
        peak=chosen.peak,
        fits=chosen.fits,
        advice=_advice(room, ways),
        read_per_token=read,
        tokens_per_second=machine.bandwidth / read
        if machine.bandwidth and kind != "none"
        else None,
    )


@dataclass(frozen=True, slots=True)
class _Room:
    """What has to fit: a text of `context` tokens, in a cache of that kind."""

    spec: DecoderSpec
    free: int | None
    kernels: Kernels | None
    kind: CacheKind
    context: int

    def width(self, way: Holding) -> Width:
        cache = kind_bytes(self.spec, self.kind, self.context, way.element)
        peak = way.weights + cache + self._work(way)
        return Width(
            dtype=way.dtype,
            matrices=way.matrices,
            weights=way.weights,
            cache=cache,
            peak=peak,
            fits=None if self.free is None else peak <= self.free,
        )

    def _work(self, way: Holding) -> int:
        """Roughly what one forward holds besides: what kernels keep, or modules, and logits."""
        spec, new = self.spec, min(self.context, PREFILL_CHUNK)
        kernels, together, kept = self.kernels, 0, 0
        if kernels is not None and way.dtype == "float32":
            together = tokens_together(spec, kernels, self.kind, new)
        if kernels is not None and together:
            keys = self.context if self.kind != "none" else together
            kept = kernel_bytes(spec, kernels, way.packed, tokens=together, keys=keys)
            kept += together * kv_bytes_per_layer(spec, 4) * (self.kind == "none")
        # Longer pieces go module by module, and so does a longer text without a cache.
        longer = new > together or (self.kind == "none" and self.context > new)
        return kept + longer * self._modules(way, new) + 3 * spec.vocab_size * 4

    def _modules(self, way: Holding, new: int) -> int:
        """Streams, the MLP's inside, scores."""
        spec, context, width, whole = self.spec, self.context, way.element, 0
        if self.kind == "none":
            # All tokens' streams before and after a layer, and that layer's own keys and values.
            whole = context * (2 * spec.hidden_size * width + kv_bytes_per_layer(spec, width))
        inner = spec.intermediate_size
        if spec.experts is not None:
            inner = max(inner, spec.experts.intermediate_size)
        attention = (spec.num_heads + 2 * spec.num_kv_heads) * spec.head_dim
        streams = new * (4 * spec.hidden_size + max(attention, 3 * inner)) * width
        plain = spec.attn_softcap is not None or spec.sinks
        scores = spec.num_heads * new * context * 4 if plain else new * context
        largest = 4 * max(spec.vocab_size * spec.embed_width, spec.hidden_size * inner)
        block = 0 if way.matrices == way.dtype else min(_BLOCK_BYTES, largest)
        return whole + streams + scores + block


def _advice(room: _Room, ways: tuple[Holding, ...]) -> str:
    if room.free is None:
        return "how much memory is free is not known here"
    now = ways[0]
    if room.width(now).fits:
        return "it fits"
    able = [now, *_narrower(ways)]
    for other in _kinds(room.kind):
        for way in able:
            if replace(room, kind=other).width(way).fits:
                flags = [*way.flags, *([f"--cache {other}"] if other != room.kind else [])]
                return f"{' and '.join(flags)} would make it fit"
    for way in able:
        longest = _longest(room, way)
        if longest is not None and longest < room.context:
            more = "".join(f" and {flag}" for flag in way.flags)
            text = "a prompt and --max-new-tokens that together stay within"
            return f"{text} {longest:,} tokens{more} would make it fit"
    least = min(able, key=lambda one: one.weights)
    given = "".join(f" with {flag}" for flag in least.flags)
    return f"no flag makes it fit:{given} the weights alone are {least.weights:,} bytes"


def _narrower(ways: tuple[Holding, ...]) -> list[Holding]:
    """Those that take less than the first, the mildest first."""
    known = {flag: way for way in ways for flag in way.flags}
    able = [known[flag] for flag in _NARROWER if flag in known]
    return [way for way in able if way.weights < ways[0].weights]


def _kinds(kind: CacheKind) -> Iterable[CacheKind]:
    """The cache that is asked for, and those that hold the same in less."""
    packed = _PACKED[_PACKED.index(kind) + 1 :] if kind in _PACKED else _PACKED
    return [kind] if kind == "none" else [kind, *packed]


def _longest(room: _Room, way: Holding) -> int | None:
    """The longest text that fits, by halving; None where not even a short one does."""
    low, high = min(_LEAST_CONTEXT, room.spec.context), room.spec.context
    if not replace(room, context=low).width(way).fits:
        return None
    while low < high:
        middle = (low + high + 1) // 2
        if replace(room, context=middle).width(way).fits:
            low = middle
        else:
            high = middle - 1
    return low
