"""The neurons view: a table a layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from llmcli.cli.columns import folded, table
from llmcli.cli.inspecting.asked import Asked
from llmcli.cli.inspecting.drawing import Drawing
from llmcli.cli.inspecting.subject import Subject
from llmcli.cli.inspecting.token_words import position_of, quoted
from llmcli.insight.bounds import check_between, check_index

if TYPE_CHECKING:
    from llmcli.insight.neurons import LayerNeurons, Neuron, Neurons, Push

_TOP, _TOP_OF_EACH, _MOST = 10, 3, 1000
_PUSHES = 3


def _compute(subject: Subject, asked: Asked) -> Neurons:
    check_between("--top", asked.top, 1, _MOST)
    check_index("--layer", asked.layer, subject.facts.spec.num_layers, "layers")
    position = position_of(subject, asked.position)
    ids, decoder = subject.prompt.ids, subject.engine.loaded.decoder
    import torch

    from llmcli.insight.neurons import watch_neurons

    return watch_neurons(
        decoder,
        torch.tensor([ids], device=decoder.device),
        position=position,
        name=subject.token_text,
        layers=None if asked.layer is None else (asked.layer,),
        top=asked.top or (_TOP_OF_EACH if asked.layer is None else _TOP),
    )


def _lines(found: Neurons, width: int | None) -> list[str]:
    about = (
        f"After token {found.position}, {quoted(found.token)}: the neurons that add the longest "
        "vectors to the stream, and what each adds by itself to the logits of tokens, past all "
        "later layers."
    )
    if found.softcap is not None:
        about += f" The logits are those from before the cap of {found.softcap:g}."
    lines = folded(about, width)
    for layer in found.layers:
        lines += ["", *_layer(layer, width)]
    return lines


def _layer(layer: LayerNeurons, width: int | None) -> list[str]:
    who = f" of {', '.join(layer.experts)}" if layer.experts else ""
    about = (
        f"Layer {layer.layer}: {layer.count:,} neurons{who}, {layer.positive:,} of them above 0; "
        f"the strongest {layer.for_half:,} add half of all lengths."
    )
    sparse = bool(layer.experts)
    header = ("neuron", "expert", "activation", "weight", "adds", "promotes", "suppresses")
    rows = [_row(one) for one in layer.strongest]
    kept = [at for at in range(len(header)) if sparse or at not in (1, 3)]
    left = [kept.index(at) for at in (1, 5, 6) if at in kept]
    cells = [[row[at] for at in kept] for row in rows]
    return [
        *folded(about, width),
        "",
        *table([header[at] for at in kept], cells, width, left=left),
    ]


def _row(one: Neuron) -> tuple[str, ...]:
    return (
        str(one.index),
        one.expert,
        f"{one.activation:+.3f}",
        f"{one.weight:.3f}",
        f"{one.length:.3f}",
        _pushed(one.promotes),
        _pushed(one.suppresses),
    )


def _pushed(pushes: Sequence[Push]) -> str:
    return "  ".join(f"{quoted(one.token)} {one.logit:+.2f}" for one in pushes[:_PUSHES])


DRAWING = Drawing(compute=_compute, lines=_lines)
