"""Taps: what a forward computes, handed to a watcher, who may also put something else there.

A tap is a hook of torch on one of the decoder's modules, there only inside `tapped`; a forward
outside of it runs no line of this file. Must not know what the numbers are for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from llmcli.model.attend import Attending, Visibility
from llmcli.model.block import Block
from llmcli.model.decoder import Decoder
from llmcli.model.gated_delta import GatedDeltaMixer
from llmcli.model.mlp import PlainMLP

# layer_in and layer_out are the residual stream before and after a layer. attn_added and
# mlp_added are what is added to it, after any norm behind the part and any multiplier; attn_out
# and mlp_out are from before these. `heads` is what the output projection of attention gets, one
# head after the other; `neurons` are the inner units of a dense MLP.
LayerPart = Literal[
    "layer_in",
    "attn_in",
    "heads",
    "attn_out",
    "attn_added",
    "mlp_in",
    "neurons",
    "mlp_out",
    "mlp_added",
    "layer_out",
]
LAYER_PARTS: tuple[LayerPart, ...] = get_args(LayerPart)
# In the decoder itself: token rows as looked up, and the stream behind the final norm.
WholePart = Literal["token_rows", "normed"]

# Sees a value [B,T,...], and may return another of its shape to stand in its place.
Tap = Callable[[Tensor], Tensor | None]
# (first query row, weights [B,H,rows,S]) of one layer; every query once, in order
WatchWeights = Callable[[int, Tensor], None]

# Query rows whose weights are in memory at once.
_WEIGHT_ROWS = 128


@dataclass(frozen=True, slots=True)
class Site:
    """A place in the forward pass; `layer` is None for the parts of the decoder itself."""

    part: LayerPart | WholePart
    layer: int | None = None


@contextmanager
def tapped(
    decoder: Decoder,
    taps: Mapping[Site, Tap],
    weights: Mapping[int, WatchWeights] | None = None,
) -> Iterator[None]:
    """Inside, every forward hands the values at these sites to the taps.

    `weights` are watchers of attention weights by layer, meant for forwards without a cache:
    there, key s is that of position s. A layer without them (a recurrent one) is an error of the
    caller's. Whatever ends the block, the decoder is left as it was.
    """
    with ExitStack() as stack:
        stack.enter_context(decoder.watched())
        for site, tap in taps.items():
            stack.callback(_hook(decoder, site, tap).remove)
        for layer, watch in (weights or {}).items():
            mixer = attending(decoder, layer)
            assert mixer is not None, f"layer {layer} has no attention weights"
            # In the instance's own dict it hides the method, and without it nothing is changed.
            mixer.__dict__["attend"] = partial(_attend_and_show, mixer, watch)
            stack.callback(mixer.__dict__.pop, "attend")
        yield


def attending(decoder: Decoder, layer: int) -> Attending | None:
    """The layer's attention, or None where a recurrence takes its place."""
    mixer = _block(decoder, layer).attn
    return mixer if isinstance(mixer, Attending) else None


def head_projection(decoder: Decoder, layer: int) -> tuple[nn.Module, int]:
    """The linear map that the heads' results go through, and the number of heads."""
    mixer = _block(decoder, layer).attn
    if isinstance(mixer, GatedDeltaMixer):
        return mixer.out_proj, mixer.facts.num_value_heads
    projection = mixer.get_submodule("o_proj")
    return projection, decoder.spec.num_heads


def has_neurons(decoder: Decoder, layer: int) -> bool:
    """Whether the layer's MLP is dense, so that its inner units can be tapped."""
    return isinstance(_block(decoder, layer).mlp, PlainMLP)


def _block(decoder: Decoder, layer: int) -> Block:
    block = decoder.layers[layer]
    assert isinstance(block, Block)
    return block


def _hook(decoder: Decoder, site: Site, tap: Tap) -> torch.utils.hooks.RemovableHandle:
    module, side, scale = _place(decoder, site)
    if scale != 1:
        tap = partial(_scaled, tap, scale)
    if side == "input":

        def before(_module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
            new = tap(args[0])
            return None if new is None else (new, *args[1:])

        return module.register_forward_pre_hook(before)

    def after(_module: nn.Module, _args: object, output: Tensor) -> Tensor | None:
        return tap(output)

    return module.register_forward_hook(after)


def _place(decoder: Decoder, site: Site) -> tuple[nn.Module, Literal["input", "output"], float]:
    """The module, the side of it, and what its value is multiplied by to be the site's."""
    if site.layer is None:
        if site.part == "token_rows":
            return decoder.embed_tokens, "output", 1.0
        assert site.part == "normed", site
        return decoder.norm, "output", 1.0
    block, residual = _block(decoder, site.layer), decoder.spec.residual
    direct = residual in ("post", "parallel", "parallel_shared")
    match site.part:
        case "layer_in":
            return block, "input", 1.0
        case "attn_in":
            return block.attn, "input", 1.0
        case "heads":
            return head_projection(decoder, site.layer)[0], "input", 1.0
        case "attn_out":
            return block.attn, "output", 1.0
        case "attn_added":
            module = block.attn if direct else block.post_attn_norm
            return module, "output", block.residual_scale
        case "mlp_in":
            return block.mlp, "input", 1.0
        case "neurons":
            assert isinstance(block.mlp, PlainMLP), f"layer {site.layer} has experts"
            return block.mlp.down_proj, "input", 1.0
        case "mlp_out":
            return block.mlp, "output", 1.0
        case "mlp_added":
            module = block.mlp if direct else block.post_mlp_norm
            return module, "output", block.residual_scale
    assert site.part == "layer_out", site
    return block, "output", 1.0


def _scaled(tap: Tap, scale: float, value: Tensor) -> Tensor | None:
    new = tap(value * scale)
    return None if new is None else new / scale


def _attend_and_show(
    mixer: Attending,
    watch: WatchWeights,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    visibility: Visibility,
) -> Tensor:
    """What the mixer computes by itself, after showing the weights, some rows at a time."""
    for start in range(0, q.shape[2], _WEIGHT_ROWS):
        rows = slice(start, start + _WEIGHT_ROWS)
        watch(start, mixer.weights(q[:, :, rows], k, _rows_of(visibility, rows, k)))
    return type(mixer).attend(mixer, q, k, v, visibility)


def _rows_of(visibility: Visibility, rows: slice, k: Tensor) -> Visibility:
    """Which keys count for some of the queries."""
    if visibility.is_causal:
        every = torch.arange(k.shape[2], device=k.device)
        return Visibility(mask=every[rows, None] >= every[None, :])
    if visibility.mask is None:
        return visibility
    return Visibility(mask=visibility.mask[..., rows, :])
