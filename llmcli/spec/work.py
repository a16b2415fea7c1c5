"""How much a forward pass computes and moves, derived from the spec alone.

A FLOP is a multiplication or an addition of a matrix product; norms, activations and the softmax
are left out, as they are small. Causal attention is counted whole, without leaving out the keys
that a mask hides. Bytes are those of weights and of the cache, not of activations; the keys that
pieces of one forward leave each other are activations too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Literal

from llmcli.spec.decoder import DecoderSpec, LayerSpec
from llmcli.spec.kept import kv_bytes_per_layer, kv_shape, state_bytes
from llmcli.spec.parameters import Shape, parameter_shapes, wide_parameters

Part = Literal["embedding", "projections", "attention", "recurrence", "mlp", "head"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Of one part in all layers. `weight_bytes` are read; cache bytes are read and written.

    `projections` are those of attention, or of what takes its place; `attention` is scores and
    weighted means.
    """

    part: Part
    flops: int = 0
    weight_bytes: int = 0
    cache_read: int = 0
    cache_written: int = 0


def forward_work(
    spec: DecoderSpec,
    *,
    new: int,
    held: int = 0,
    cached: bool = True,
    element_bytes: int = 2,
    logits: int = 1,
    piece: int | None = None,
    held_in: Mapping[str, float] | None = None,
) -> tuple[Work, ...]:
    """What a forward of `new` tokens costs after `held` ones that a cache holds.

    Without `cached` nothing is kept, and `held` must be 0. `logits` is for how many of the new
    tokens the head computes them. Of experts, as many are read as the tokens could choose. `piece`:
    without a cache, so many tokens go through a layer at a time, and each piece reads its weights.
    `held_in` gives the bytes of a number of the parameters that are not held in `element_bytes`.
    """
    assert cached or not held
    run = _Run(spec, new, held, cached, element_bytes, new if cached or not piece else piece)
    run.held_in = held_in or {}
    parts: list[Part] = ["embedding", "projections", "attention", "recurrence", "mlp"]
    totals = {part: [0, 0, 0, 0] for part in parts}
    for index, layer in enumerate(spec.layers):
        for work in run.layer(index, layer):
            numbers = (work.flops, work.weight_bytes, work.cache_read, work.cache_written)
            for at, number in enumerate(numbers):
                totals[work.part][at] += number
    found = [
        Work(part=part, flops=n[0], weight_bytes=n[1], cache_read=n[2], cache_written=n[3])
        for part, n in totals.items()
        if any(n)
    ]
    return (run.embedding(), *found, run.head(logits))


def total(parts: tuple[Work, ...]) -> tuple[int, int]:
    """FLOPs and bytes of all parts."""
    moved = sum(one.weight_bytes + one.cache_read + one.cache_written for one in parts)
    return sum(one.flops for one in parts), moved


class _Run:
    """The shapes of one forward, by layer."""

    def __init__(
        self, spec: DecoderSpec, new: int, held: int, cached: bool, size: int, piece: int
    ) -> None:
        self.piece = piece
        # Tokens of each piece, in their order.
        self.pieces = [min(piece, new - start) for start in range(0, new, piece)]
        self.held_in: Mapping[str, float] = {}
        self.spec, self.new, self.held, self.cached, self.size = spec, new, held, cached, size
        self.shapes = parameter_shapes(spec)
        self.wide = wide_parameters(spec)

    def embedding(self) -> Work:
        spec, new = self.spec, self.new
        flops = 2 * new * spec.hidden_size * spec.embed_width if spec.embed_size else 0
        read = new * spec.embed_width * self._size("embed_tokens.weight")
        if "embed_positions.weight" in self.shapes:
            read += new * spec.hidden_size * self._size("embed_positions.weight")
        read += self._whole("embed_proj.weight")
        return Work(part="embedding", flops=flops, weight_bytes=round(read))

    def head(self, logits: int) -> Work:
        spec = self.spec
        matrix = spec.vocab_size * spec.embed_width
        matrix += prod(self.shapes.get("head_proj.weight", (0,)))
        named = "embed_tokens.weight" if spec.tie_embeddings else "lm_head.weight"
        others = ["head_proj.weight", "lm_head.bias"]
        others += [name for name in self.shapes if name.startswith("norm.")]
        weight_bytes = round(sum(map(self._whole, (named, *others))))
        return Work(part="head", flops=2 * logits * matrix, weight_bytes=weight_bytes)

    def layer(self, index: int, layer: LayerSpec) -> list[Work]:
        prefix = f"layers.{index}."
        own = {
            name.removeprefix(prefix): shape
            for name, shape in self.shapes.items()
            if name.startswith(prefix)
        }
        attn = {name: shape for name, shape in own.items() if "attn" in name.split(".")[0]}
        mlp = {name: shape for name, shape in own.items() if name not in attn}
        return [
            Work(
                part="projections",
                flops=2 * self.new * sum(_matrix(n, s) for n, s in attn.items()),
                weight_bytes=len(self.pieces) * self._bytes(prefix, attn),
            ),
            self._recurrence() if layer.mixer == "gated_delta" else self._attention(layer),
            self._mlp(prefix, mlp),
        ]

    def _attention(self, layer: LayerSpec) -> Work:
        spec, new = self.spec, self.new
        _, key, value = kv_shape(spec)
        held = self.held if layer.window is None else min(self.held, layer.window - 1)
        width = kv_bytes_per_layer(spec, self.size)
        return Work(
            part="attention",
            flops=2 * spec.num_heads * self._pairs(layer, held) * (key + value),
            cache_read=held * width if self.cached else 0,
            cache_written=new * width if self.cached else 0,
        )

    def _pairs(self, layer: LayerSpec, held: int) -> int:
        """Queries times keys; later pieces see those before them, or what a window leaves."""
        pairs = 0
        for number, count in enumerate(self.pieces):
            start = number * self.piece
            before = held + start
            if start and layer.window is not None:
                before = min(before, layer.window - (count == 1))
            pairs += count * (before + count)
        return pairs

    def _recurrence(self) -> Work:
        facts, new = self.spec.linear, self.new
        assert facts is not None
        state = facts.num_value_heads * facts.key_dim * facts.value_dim
        channels = 2 * facts.num_key_heads * facts.key_dim
        channels += facts.num_value_heads * facts.value_dim
        kept = state_bytes(self.spec, self.size)
        return Work(
            part="recurrence",
            # The filter, and two products of a vector with the state for each token.
            flops=2 * new * channels * facts.conv_kernel + 4 * new * state,
            cache_read=kept if self.cached and self.held else 0,
            cache_written=kept if self.cached else 0,
        )

    def _mlp(self, prefix: str, mlp: dict[str, Shape]) -> Work:
        experts = self.spec.experts
        always = {name: shape for name, shape in mlp.items() if ".experts." not in name}
        one = {name: shape for name, shape in mlp.items() if name.startswith("mlp.experts.0.")}
        flops = sum(_matrix(name, shape) for name, shape in always.items())
        read = len(self.pieces) * self._bytes(prefix, always)
        if one and experts is not None:
            flops += experts.top_k * sum(_matrix(name, shape) for name, shape in one.items())
            chosen = sum(min(experts.count, count * experts.top_k) for count in self.pieces)
            read += chosen * self._bytes(prefix, one)
        return Work(part="mlp", flops=2 * self.new * flops, weight_bytes=read)

    def _bytes(self, prefix: str, shapes: dict[str, Shape]) -> int:
        return round(sum(self._whole(prefix + name) for name in shapes))

    def _whole(self, name: str) -> float:
        """Bytes of a parameter; 0 where there is none of that name."""
        return prod(self.shapes.get(name, (0,))) * self._size(name)

    def _size(self, name: str) -> float:
        """Bytes of one of its numbers."""
        return self.held_in.get(name, max(4, self.size) if name in self.wide else self.size)


def _matrix(name: str, shape: Shape) -> int:
    """Multiply-adds that a token costs in this parameter."""
    return prod(shape) if len(shape) == 2 and "norm" not in name else 0
