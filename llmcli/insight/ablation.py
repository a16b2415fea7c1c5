"""Ablation: what changes in a model's predictions when parts of it are taken out.

Must not know terminals, nor how texts are generated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from llmcli.generation.finite import require_finite
from llmcli.insight.edits import Edits, has_heads
from llmcli.model import Decoder
from llmcli.model.edits import scale_mlp, skip_layer, zero_head
from llmcli.model.taps import Site, Tap, tapped

Sweep = Literal["heads", "layers", "mlps"]
SWEEPS: tuple[Sweep, ...] = get_args(Sweep)
# Rows of logits in memory at once; a vocabulary may have 256,000 entries.
_ROWS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenChange:
    """One token of the text, both models having read the base text before it.

    `kl` is KL(base || changed) of the distributions that the token was one of, in nats.
    """

    position: int
    id: int
    token: str
    kl: float
    base_prob: float
    changed_prob: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Losses are means of -ln p a token, in nats; None where there is no token to predict.

    `new` counts from 0 the first token that is not the prompt's.
    """

    tokens: tuple[TokenChange, ...]
    new: int
    prompt_loss: tuple[float, float] | None
    text_loss: tuple[float, float] | None
    mean_kl: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """The loss with one part alone taken out; `head` is None of layers and MLPs."""

    layer: int
    head: int | None
    loss: float
    change: float


def taps_for(decoder: Decoder, edits: Edits) -> dict[Site, Tap]:
    """The taps that make the edits; no two share a site, as read_edits saw to."""
    taps: dict[Site, Tap] = {}
    for layer in edits.skip:
        taps |= skip_layer(layer)
    for layer, heads in edits.heads.items():
        taps |= zero_head(decoder, layer, heads)
    for layer, factor in edits.mlps.items():
        taps |= scale_mlp(layer, factor)
    return taps


@torch.inference_mode()
def compare(
    decoder: Decoder, ids: Tensor, edits: Edits, *, new: int, name: Callable[[int], str]
) -> Change:
    """Along ids [1,T] of the base text, whose first `new` are the prompt's."""
    base = decoder.hidden(ids)[0, :-1]
    with tapped(decoder, taps_for(decoder, edits)):
        changed = decoder.hidden(ids)[0, :-1]
    targets, tokens = ids[0, 1:], []
    for start in range(0, len(targets), _ROWS):
        rows = slice(start, start + _ROWS)
        p, q = (_log_probs(decoder, streams[rows]) for streams in (base, changed))
        kl = torch.nn.functional.kl_div(q, p, reduction="none", log_target=True)
        # 0 ln 0 is 0: a token without any chance in the base adds nothing.
        kl = kl.masked_fill(p == float("-inf"), 0).sum(-1).clamp(min=0)
        mine = targets[rows, None]
        found = zip(
            mine[:, 0].tolist(),
            kl.tolist(),
            p.gather(-1, mine)[:, 0].exp().tolist(),
            q.gather(-1, mine)[:, 0].exp().tolist(),
            strict=True,
        )
        for at, (id_, one, before, after) in enumerate(found, start + 1):
            tokens.append(
                TokenChange(
                    position=at,
                    id=id_,
                    token=name(id_),
                    kl=one,
                    base_prob=before,
                    changed_prob=after,
                )
            )
    losses = [_losses(decoder, streams, targets) for streams in (base, changed)]
    return Change(
        tokens=tuple(tokens),
        new=new,
        prompt_loss=_means(losses, slice(0, new - 1)),
        text_loss=_means(losses, slice(new - 1, None)),
        mean_kl=sum(one.kl for one in tokens) / len(tokens) if tokens else None,
    )


def sweep(decoder: Decoder, ids: Tensor, what: Sweep) -> Iterator[Effect]:
    """Every part of the kind taken out alone, in the order of layers, on ids [1,T] with T > 1.

    Raises GenerationError where the loss of the whole is not finite; without a part it may be inf.
    """
    before = _loss(decoder, ids, {})
    require_finite(decoder, ids, torch.tensor(before))
    for layer, head in parts_of(decoder, what):
        if what == "heads":
            assert head is not None
            taps = zero_head(decoder, layer, frozenset({head}))
        else:
            taps = skip_layer(layer) if what == "layers" else scale_mlp(layer, 0.0)
        loss = _loss(decoder, ids, taps)
        loss = loss if math.isfinite(loss) else math.inf
        yield Effect(layer=layer, head=head, loss=loss, change=loss - before)


def parts_of(decoder: Decoder, what: Sweep) -> list[tuple[int, int | None]]:
    """Layers, or layers with their heads; a recurrent layer has none."""
    spec = decoder.spec
    if what != "heads":
        return [(layer, None) for layer in range(spec.num_layers)]
    able = [layer for layer in range(spec.num_layers) if has_heads(spec, layer)]
    return [(layer, head) for layer in able for head in range(spec.num_heads)]


@torch.inference_mode()
def _loss(decoder: Decoder, ids: Tensor, taps: dict[Site, Tap]) -> float:
    with tapped(decoder, taps):
        streams = decoder.hidden(ids)[0, :-1]
    return float(_losses(decoder, streams, ids[0, 1:]).mean())


def _losses(decoder: Decoder, streams: Tensor, targets: Tensor) -> Tensor:
    """-ln p of the targets [T] after streams [T,C], in float64."""
    found = [torch.empty(0, dtype=torch.float64)]
    for start in range(0, len(targets), _ROWS):
        rows = slice(start, start + _ROWS)
        logs = _log_probs(decoder, streams[rows]).gather(-1, targets[rows, None])
        found.append(-logs[:, 0].to("cpu", torch.float64))
    return torch.cat(found)


def _means(losses: list[Tensor], rows: slice) -> tuple[float, float] | None:
    base, changed = (one[rows] for one in losses)
    return (float(base.mean()), float(changed.mean())) if len(base) else None


def _log_probs(decoder: Decoder, streams: Tensor) -> Tensor:
    logits = decoder.unembed(streams)
    return logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1)
