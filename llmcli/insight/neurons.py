"""Neurons: the MLP as key-value memory (arXiv 2012.14913), at one position.

An inner unit is a key that fires at what it reads; its column of down_proj is the value that it
then adds to the stream. What a value does to the logits is taken directly, past all later layers:
through every norm on the way with the statistics that it really has there. Must not know terminals.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from llmcli.generation.finite import require_finite
from llmcli.model import Decoder
from llmcli.model.block import Block
from llmcli.model.experts import SparseMLP
from llmcli.model.mlp import PlainMLP
from llmcli.model.norm import affine_at
from llmcli.model.taps import LayerPart, Site, Tap, tapped

_PARTS: tuple[LayerPart, ...] = ("layer_in", "attn_out", "mlp_in", "mlp_out", "layer_out")
# Rows of the head in memory at once, in the wider dtype.
_ROWS = 16384
_TOKENS = 5


@dataclass(frozen=True, slots=True)
class Push:
    """What a neuron adds to one token's logit."""

    id: int
    token: str
    logit: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Neuron:
    """`index` counts within its MLP; `expert` is empty where the layer has only one.

    `weight` is the router's, which multiplies the activation. `length` is that of the vector
    added, before any norm behind the MLP.
    """

    layer: int
    expert: str
    index: int
    activation: float
    weight: float
    length: float
    promotes: tuple[Push, ...]
    suppresses: tuple[Push, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerNeurons:
    """`count` inner units ran (those of chosen experts), `positive` of them above 0.

    The strongest `for_half` make up half of all lengths added.
    """

    layer: int
    experts: tuple[str, ...]
    count: int
    positive: int
    for_half: int
    strongest: tuple[Neuron, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Neurons:
    """After token `position`; a cap on the logits stands behind what the neurons add to them."""

    position: int
    token: str
    layers: tuple[LayerNeurons, ...]
    softcap: float | None


@dataclass(frozen=True, slots=True)
class _Firing:
    """One MLP at work: activations [F] and values [F,C], both as they are stored."""

    expert: str
    activations: Tensor
    values: Tensor
    weight: float

    def lengths(self) -> Tensor:
        """float64 [F]."""
        wide = torch.promote_types(self.values.dtype, torch.float32)
        norms = torch.linalg.vector_norm(self.values, dim=1, dtype=wide)
        added: Tensor = norms * self.activations.to(wide) * self.weight
        return added.abs().to("cpu", torch.float64)


@torch.inference_mode()
def watch_neurons(
    decoder: Decoder,
    ids: Tensor,
    *,
    position: int,
    name: Callable[[int], str],
    layers: Collection[int] | None = None,
    top: int = 10,
) -> Neurons:
    """For ids [1,T] and these layers (None: all), the `top` neurons of each.

    Raises GenerationError for logits that are not finite.
    """
    seen = _watch(decoder, ids[:, : position + 1])
    chosen = range(decoder.spec.num_layers) if layers is None else sorted(layers)
    return Neurons(
        position=position,
        token=name(int(ids[0, position])),
        layers=tuple(_layer(decoder, seen, layer, top, name) for layer in chosen),
        softcap=decoder.spec.logit_softcap,
    )


def direct_logits(decoder: Decoder, seen: dict[Site, Tensor], layer: int, rows: Tensor) -> Tensor:
    """What parts [N,C] of the layer's MLP output add to all logits, [N,V], before any cap."""
    rows = _to_head(decoder, seen, layer, rows.to("cpu", torch.float64))
    matrix = (decoder.embed_tokens if decoder.lm_head.tied else decoder.lm_head).matrix()
    wide = torch.promote_types(matrix.dtype, torch.float32)
    narrow = rows.to(wide)
    pieces = [narrow @ part.to("cpu", wide).T for part in torch.split(matrix, _ROWS)]
    return torch.cat(pieces, 1) * decoder.spec.logit_scale


def _layer(
    decoder: Decoder, seen: dict[Site, Tensor], layer: int, top: int, name: Callable[[int], str]
) -> LayerNeurons:
    firing = _firing(_block(decoder, layer).mlp, seen[Site("mlp_in", layer)])
    lengths = torch.cat([one.lengths() for one in firing])
    falling, order = lengths.sort(descending=True, stable=True)
    half = int((falling.cumsum(0) < falling.sum() / 2).sum()) + 1
    strongest = _neurons(decoder, seen, layer, firing, order[:top].tolist(), name)
    return LayerNeurons(
        layer=layer,
        experts=tuple(one.expert for one in firing if one.expert),
        count=len(lengths),
        positive=sum(int((one.activations > 0).sum()) for one in firing),
        for_half=half,
        strongest=strongest,
    )


def _neurons(
    decoder: Decoder,
    seen: dict[Site, Tensor],
    layer: int,
    firing: list[_Firing],
    places: list[int],
    name: Callable[[int], str],
) -> tuple[Neuron, ...]:
    found = [_find(firing, place) for place in places]
    added = torch.stack(
        [one.values[at].double() * float(one.activations[at]) * one.weight for one, at in found]
    )
    logits = direct_logits(decoder, seen, layer, added)
    count = min(_TOKENS, logits.shape[1])

    def pushes(row: Tensor, *, largest: bool) -> tuple[Push, ...]:
        values, ids = row.topk(count, largest=largest)
        pairs = zip(ids.tolist(), values.tolist(), strict=True)
        return tuple(Push(id_, name(id_), value) for id_, value in pairs)

    return tuple(
        Neuron(
            layer=layer,
            expert=one.expert,
            index=at,
            activation=float(one.activations[at]),
            weight=one.weight,
            length=float(torch.linalg.vector_norm(added[row])),
            promotes=pushes(logits[row], largest=True),
            suppresses=pushes(logits[row], largest=False),
        )
        for row, (one, at) in enumerate(found)
    )


def _find(firing: list[_Firing], place: int) -> tuple[_Firing, int]:
    for one in firing:
        if place < len(one.activations):
            return one, place
        place -= len(one.activations)
    raise AssertionError(place)


def _firing(mlp: nn.Module, x: Tensor) -> list[_Firing]:
    """The MLPs that run at x [C]."""
    if isinstance(mlp, PlainMLP):
        return [_fire(mlp, x, "", 1.0)]
    assert isinstance(mlp, SparseMLP)
    weights, chosen = mlp.route(x[None])
    pairs = zip(chosen[0].tolist(), weights[0].tolist(), strict=True)
    found = [_fire(mlp.experts[index], x, f"expert {index}", weight) for index, weight in pairs]
    if mlp.shared is not None:
        gate = 1.0 if mlp.shared_gate is None else float(mlp.shared_gate(x[None]).sigmoid())
        found.append(_fire(mlp.shared, x, "shared expert", gate))
    return found


def _fire(mlp: nn.Module, x: Tensor, expert: str, weight: float) -> _Firing:
    assert isinstance(mlp, PlainMLP)
    return _Firing(expert, mlp.inner(x[None])[0], mlp.down_proj.matrix().T, weight)


def _to_head(decoder: Decoder, seen: dict[Site, Tensor], layer: int, rows: Tensor) -> Tensor:
    """Parts of an MLP's output as parts of what the head reads, in float64."""

    def at(part: LayerPart, layer: int) -> Tensor:
        return seen[Site(part, layer)].to("cpu", torch.float64)

    block = _block(decoder, layer)
    rows = _through(block.post_mlp_norm, at("mlp_out", layer), rows) * block.residual_scale
    if decoder.spec.residual == "post":
        rows = _through(block.mlp_norm, at("mlp_in", layer) + at("mlp_out", layer), rows)
        for later in range(layer + 1, len(decoder.layers)):
            block = _block(decoder, later)
            rows = _through(block.attn_norm, at("layer_in", later) + at("attn_out", later), rows)
            rows = _through(block.mlp_norm, at("mlp_in", later) + at("mlp_out", later), rows)
    rows = _through(decoder.norm, at("layer_out", len(decoder.layers) - 1), rows)
    if decoder.head_proj is not None:
        rows = rows @ decoder.head_proj.matrix().to("cpu", torch.float64).T
    return rows


def _through(norm: nn.Module, at: Tensor, rows: Tensor) -> Tensor:
    affine = affine_at(norm, at)
    return rows if affine is None else affine.apply(rows)


def _watch(decoder: Decoder, ids: Tensor) -> dict[Site, Tensor]:
    """Values [C] of every site on the way, at the last id."""
    seen: dict[Site, Tensor] = {}

    def keep(site: Site) -> Tap:
        def tap(value: Tensor) -> None:
            seen[site] = value[0, -1].clone()

        return tap

    sites = [Site(part, layer) for layer in range(decoder.spec.num_layers) for part in _PARTS]
    with tapped(decoder, {site: keep(site) for site in sites}):
        end = decoder.hidden(ids)[:, -1:]
    require_finite(decoder, ids, decoder.unembed(end))
    return seen


def _block(decoder: Decoder, layer: int) -> Block:
    block = decoder.layers[layer]
    assert isinstance(block, Block)
    return block
