"""DoLa (arXiv 2309.03883): what the last layer knows that an earlier one did not yet.

Of the candidate layers, the one whose next-token distribution q lies furthest from the last
layer's p, by Jensen-Shannon divergence, is contrasted with it: the logits are log p - log q
where p is at least 0.1 of its largest value, and -inf elsewhere. Every layer is read through
the final norm and the head, which is the paper's formula; the authors' code, and with it
transformers', leaves the norm out of the earlier layers and swaps the divergence's sides.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from llmcli.errors import UsageError
from llmcli.generation.options import DolaLayers
from llmcli.generation.params import SamplingParams
from llmcli.generation.stepper import Stepper
from llmcli.generation.strategies.base import StrategyOptions
from llmcli.generation.strategies.sequential import Sequential, Source
from llmcli.model import Decoder
from llmcli.spec import DecoderSpec

# The paper's adaptive plausibility constraint.
_PLAUSIBLE = 0.1
# Candidates of deep models lie within so many layers of an end, as in the authors' experiments.
_REACH = 20


class DoLa(Sequential):
    """The contrast is what the chain begins with; it is drawn from, or its best is taken."""

    source_name = "dola"
    constrainable = False

    def __init__(self, params: SamplingParams, options: StrategyOptions) -> None:
        super().__init__(params, options, sampling=options.sampling)

    def make_source(self, stepper: Stepper) -> Source:
        decoder = stepper.decoder
        layers = premature_layers(self._options.dola_layers, decoder.spec)

        def feed(new: Tensor) -> tuple[Tensor, Tensor]:
            with _streams_before(decoder, layers) as streams:
                logits = stepper.feed_fresh(new)
            with torch.inference_mode():
                early = decoder.unembed(torch.stack([streams[layer] for layer in layers]))
            return logits, contrast(logits, early[:, :, -1].to(logits.dtype))

        return feed


def premature_layers(asked: DolaLayers, spec: DecoderSpec) -> tuple[int, ...]:
    """Candidate layers; layer j is the stream that block j reads, so 0 is the embedding.

    `low` and `high` are every other layer of the lower and the upper half. A tied embedding is
    no candidate where there is another, as it says little but the present token.
    Raises UsageError for layers that the decoder does not have.
    """
    count = spec.num_layers
    if not isinstance(asked, str):
        if not asked or not all(0 <= layer < count for layer in asked):
            raise UsageError(
                f"dola-layers are {', '.join(map(str, asked)) or 'none'}; "
                f"this model's lie between 0 and {count - 1}",
                hint="0 is the embedding; `low` and `high` choose for you",
            )
        return tuple(sorted(set(asked)))
    if not count:
        raise UsageError(
            "DoLa contrasts layers, and this model has none",
            hint="leave --strategy dola out",
        )
    middle = count // 2
    if asked == "high":
        return tuple(range(max(middle, count - _REACH), count, 2))
    first = min(2, count - 1) if spec.tie_embeddings else 0
    return tuple(range(first, max(min(middle, _REACH), first + 1), 2))


def contrast(last: Tensor, early: Tensor) -> Tensor:
    """Logits [1,V] of the last layer against the furthest of early ones [layers,1,V]."""
    p, q = last.log_softmax(-1), early.log_softmax(-1)
    furthest = q[_divergence(p, q).argmax()]
    implausible = p < p.amax(-1, keepdim=True) + math.log(_PLAUSIBLE)
    return (p - furthest).masked_fill(implausible, float("-inf"))


def _divergence(p: Tensor, q: Tensor) -> Tensor:
    """Jensen-Shannon divergence [layers] of log-distributions p [1,V] and q [layers,1,V]."""
    middle = torch.logaddexp(p.expand_as(q), q) - math.log(2)
    return (_from(p, middle) + _from(q, middle))[:, 0] / 2


def _from(p: Tensor, other: Tensor) -> Tensor:
    """Kullback-Leibler divergence of `other` from p, both log-distributions [...,V]."""
    return (p.exp() * (p - other)).sum(-1)


@contextmanager
def _streams_before(decoder: Decoder, layers: Sequence[int]) -> Iterator[dict[int, Tensor]]:
    """Fills up with the last position's stream [B,1,C] before each of the layers."""
    streams: dict[int, Tensor] = {}

    def watch(layer: int) -> torch.utils.hooks.RemovableHandle:
        def look(_block: torch.nn.Module, inputs: tuple[Tensor, ...]) -> None:
            streams[layer] = inputs[0][:, -1:]

        return decoder.layers[layer].register_forward_pre_hook(look)

    handles = [watch(layer) for layer in layers]
    try:
        with decoder.watched():
            yield streams
    finally:
        for handle in handles:
            handle.remove()
