"""Edits: taps that take a part of the decoder out, or turn it up and down, for one experiment."""

from __future__ import annotations

from functools import partial

from torch import Tensor

from llmcli.model.decoder import Decoder
from llmcli.model.taps import Site, Tap, head_projection


def zero_head(decoder: Decoder, layer: int, heads: frozenset[int]) -> dict[Site, Tap]:
    """These heads of the layer add nothing; a bias of the output projection stays."""
    count = head_projection(decoder, layer)[1]
    assert all(0 <= head < count for head in heads), f"layer {layer} has {count} heads"

    def tap(mixed: Tensor) -> Tensor:
        split = mixed.view(*mixed.shape[:-1], count, -1).clone()
        split[..., sorted(heads), :] = 0
        return split.view(mixed.shape)

    return {Site("heads", layer): tap}


def scale_mlp(layer: int, factor: float) -> dict[Site, Tap]:
    """What the MLP adds to the stream is multiplied by `factor`; 0 takes it out."""
    return {Site("mlp_added", layer): partial(_times, factor)}


def skip_layer(layer: int) -> dict[Site, Tap]:
    """The stream passes the layer unchanged. It is still computed, so a cache stays in order."""
    held: list[Tensor] = []

    def keep(stream: Tensor) -> None:
        held[:] = [stream]

    def restore(_stream: Tensor) -> Tensor:
        return held.pop()

    return {Site("layer_in", layer): keep, Site("layer_out", layer): restore}


def _times(factor: float, added: Tensor) -> Tensor:
    return added * factor
