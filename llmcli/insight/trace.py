"""One forward pass, step by step: shapes, the residual stream's length, what is added, time.

Must not know terminals.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from llmcli.generation.finite import require_finite
from llmcli.model import Decoder
from llmcli.model.taps import LayerPart, Site, Tap, has_neurons, tapped

Shape = tuple[int, ...]
# The whole pass is timed so often, and the fastest run taken.
_REPEATS = 3
_TIMED: tuple[LayerPart, ...] = ("layer_in", "attn_in", "attn_out", "mlp_in", "mlp_out")


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A tensor on the way, with its shape; `layer` None outside of the layers."""

    name: str
    shape: Shape
    layer: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerTrace:
    """Lengths (L2) and cosines are means over the tokens; `stream` is from before the layer.

    A cosine is that of what is added with the stream that it is added to. `other` is norms and
    additions.
    """

    layer: int
    mixer: str
    stream: float
    attn_added: float
    attn_cosine: float
    mlp_added: float
    mlp_cosine: float
    attn_seconds: float
    mlp_seconds: float
    other_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """`stream_end` is the stream's length after the last layer; `values` are those of layer 0.

    The seconds are of the fastest of a few runs in which nothing else was looked at.
    """

    tokens: tuple[str, ...]
    values: tuple[Value, ...]
    layers: tuple[LayerTrace, ...]
    stream_end: float
    embed_seconds: float
    head_seconds: float
    total_seconds: float
    likeliest: str
    likeliest_prob: float


@torch.inference_mode()
def trace(decoder: Decoder, ids: Tensor, *, name: Callable[[int], str]) -> Trace:
    """For ids [1,T]; `name` gives a token's text.

    Raises GenerationError where the logits, or a stream on the way, are not finite.
    """
    layers = range(decoder.spec.num_layers)
    measured = [_Measured() for _ in layers]
    shapes: dict[LayerPart, Shape] = {}
    taps = {site: tap for at in layers for site, tap in _lengths(decoder, at, measured[at]).items()}
    for site, tap in _shapes(decoder, shapes).items():
        taps[site] = _both(taps.get(site), tap)
    with tapped(decoder, taps):
        logits = decoder(ids)
    streams = torch.tensor([[one.stream, one.end] for one in measured])
    require_finite(decoder, ids, logits, streams)
    clock = min((_timed(decoder, ids) for _ in range(_REPEATS)), key=lambda one: one.total)
    probs = logits[0, -1].float().softmax(-1)
    return Trace(
        tokens=tuple(name(id_) for id_ in ids[0].tolist()),
        values=_values(decoder, ids, shapes, tuple(logits.shape)),
        layers=tuple(
            LayerTrace(
                layer=at,
                mixer=decoder.spec.layers[at].mixer.replace("_", " "),
                stream=one.stream,
                attn_added=one.attn_added,
                attn_cosine=one.attn_cosine,
                mlp_added=one.mlp_added,
                mlp_cosine=one.mlp_cosine,
                attn_seconds=clock.between(at, "attn_in", "attn_out"),
                mlp_seconds=clock.between(at, "mlp_in", "mlp_out"),
                other_seconds=clock.other(at),
            )
            for at, one in enumerate(measured)
        ),
        stream_end=measured[-1].end,
        embed_seconds=clock.embed,
        head_seconds=clock.head,
        total_seconds=clock.total,
        likeliest=name(int(probs.argmax())),
        likeliest_prob=float(probs.max()),
    )


class _Measured:
    """What the taps of one layer make of its tensors, at once, so that none is kept longer."""

    stream = attn_added = attn_cosine = mlp_added = mlp_cosine = end = 0.0
    before: Tensor | None = None


def _lengths(decoder: Decoder, layer: int, out: _Measured) -> dict[Site, Tap]:
    residual = decoder.spec.residual
    parallel = residual in ("parallel", "parallel_shared")

    def begin(stream: Tensor) -> None:
        out.before, out.stream = stream, _length(stream)

    def attn(added: Tensor) -> None:
        assert out.before is not None
        out.attn_added, out.attn_cosine = _length(added), _cosine(added, out.before)
        if not parallel:
            out.before = out.before + added

    def between(stream: Tensor) -> None:
        # Where the norm comes after the addition, the MLP reads the stream itself.
        if residual == "post":
            out.before = stream

    def mlp(added: Tensor) -> None:
        assert out.before is not None
        out.mlp_added, out.mlp_cosine = _length(added), _cosine(added, out.before)
        out.before = None

    def end(stream: Tensor) -> None:
        out.end = _length(stream)

    return {
        Site("layer_in", layer): begin,
        Site("attn_added", layer): attn,
        Site("mlp_in", layer): between,
        Site("mlp_added", layer): mlp,
        Site("layer_out", layer): end,
    }


def _shapes(decoder: Decoder, out: dict[LayerPart, Shape]) -> dict[Site, Tap]:
    def note(part: LayerPart) -> Tap:
        def tap(value: Tensor) -> None:
            out[part] = tuple(value.shape)

        return tap

    parts: list[LayerPart] = ["layer_in", "heads", "attn_added", "mlp_added", "layer_out"]
    if has_neurons(decoder, 0):
        parts.append("neurons")
    return {Site(part, 0): note(part) for part in parts}


def _values(
    decoder: Decoder, ids: Tensor, shapes: dict[LayerPart, Shape], logits: Shape
) -> tuple[Value, ...]:
    spec, (rows, tokens) = decoder.spec, ids.shape
    found = [
        Value(name="ids", shape=(rows, tokens)),
        Value(name="embedding", shape=shapes["layer_in"]),
    ]
    if spec.layers[0].mixer == "attention":
        value = spec.head_dim if spec.latent is None else spec.latent.value_dim
        queries, keys = (rows, spec.num_heads, tokens), (rows, spec.num_kv_heads, tokens)
        found += [
            Value(name="queries", shape=(*queries, spec.head_dim), layer=0),
            Value(name="keys", shape=(*keys, spec.head_dim), layer=0),
            Value(name="values", shape=(*keys, value), layer=0),
            Value(name="attention weights", shape=(*queries, tokens), layer=0),
        ]
    named: list[tuple[LayerPart, str]] = [
        ("heads", "heads, side by side"),
        ("attn_added", "added by attention"),
        ("neurons", "MLP, inner"),
        ("mlp_added", "added by the MLP"),
        ("layer_out", "stream after the layer"),
    ]
    found += [
        Value(name=text, shape=shapes[part], layer=0) for part, text in named if part in shapes
    ]
    return (*found, Value(name="logits of the last token", shape=logits))


def _timed(decoder: Decoder, ids: Tensor) -> _Clock:
    clock = _Clock(decoder)
    clock.run(ids)
    return clock


class _Clock:
    """When each part began and ended, in a run of its own."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self._at: dict[Site, float] = {}
        self.embed = self.head = self.total = 0.0

    def run(self, ids: Tensor) -> None:
        layers = range(self._decoder.spec.num_layers)
        sites = [Site(part, at) for at in layers for part in (*_TIMED, "layer_out")]
        with tapped(self._decoder, {site: self._stamp(site) for site in sites}):
            start = self._now()
            self._decoder(ids)
            end = self._now()
        self.embed = self._at[Site("layer_in", 0)] - start
        self.head = end - self._at[Site("layer_out", layers[-1])]
        self.total = end - start

    def between(self, layer: int, start: LayerPart, end: LayerPart) -> float:
        return self._at[Site(end, layer)] - self._at[Site(start, layer)]

    def other(self, layer: int) -> float:
        parts = self.between(layer, "attn_in", "attn_out") + self.between(
            layer, "mlp_in", "mlp_out"
        )
        return self.between(layer, "layer_in", "layer_out") - parts

    def _stamp(self, site: Site) -> Tap:
        def tap(_value: Tensor) -> None:
            self._at[site] = self._now()

        return tap

    def _now(self) -> float:
        """After all that was asked of the device is done."""
        device = self._decoder.device
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        elif device.type == "mps":
            torch.mps.synchronize()
        return time.perf_counter()


def _both(first: Tap | None, second: Tap) -> Tap:
    def tap(value: Tensor) -> None:
        for one in (first, second):
            if one is not None:
                one(value)

    return tap


def _length(x: Tensor) -> float:
    return float(_wide(x).norm(dim=-1).mean())


def _cosine(x: Tensor, y: Tensor) -> float:
    return float(torch.cosine_similarity(_wide(x), _wide(y), dim=-1).mean())


def _wide(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))
