"""The attention view: maps of scores over layers and heads, the best of each, one head whole."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from llmcli.cli.columns import cells_wide, folded, table
from llmcli.cli.inspecting.asked import Asked
from llmcli.cli.inspecting.drawing import Drawing
from llmcli.cli.inspecting.subject import Subject
from llmcli.cli.inspecting.svg import Svg, heat_map
from llmcli.cli.inspecting.svg_grid import small_maps
from llmcli.cli.inspecting.token_words import compact, quoted
from llmcli.cli.progress import StepProgress
from llmcli.errors import UsageError
from llmcli.insight.bounds import check_between, check_index

if TYPE_CHECKING:
    from llmcli.insight.attention import Attention, HeadDetail, HeadScores

    _Score = Callable[[HeadScores], float | None]

_TOP, _MOST = 5, 10_000
_SHADES = " .:-=+*#%@"
_LABEL = 12
# A head is drawn token by token up to here.
_DRAWN = 100
_KEYS = 4

_SCORES: tuple[tuple[str, str, _Score], ...] = (
    ("first", "weight on the first token (a sink)", lambda one: one.first),
    ("previous", "weight on the token before", lambda one: one.previous),
    (
        "induction",
        "weight on what followed the same token before, on a random sequence that comes twice",
        lambda one: one.induction,
    ),
    ("entropy", "entropy of the weights in bits: 0 is one key", lambda one: one.entropy_bits),
)


def _compute(subject: Subject, asked: Asked) -> Attention:
    spec = subject.facts.spec
    check_between("--top", asked.top, 1, _MOST)
    check_index("--layer", asked.layer, spec.num_layers, "layers")
    check_index("--head", asked.head, spec.num_heads, "heads in a layer")
    if asked.head is not None and asked.layer is None:
        raise UsageError(f"--head {asked.head} of which layer?", hint="give --layer too")
    if asked.layer is not None and spec.layers[asked.layer].mixer != "attention":
        kind = spec.layers[asked.layer].mixer.replace("_", " ")
        looking = [at for at, one in enumerate(spec.layers) if one.mixer == "attention"]
        raise UsageError(
            f"layer {asked.layer} has no attention weights: it is {kind}, a recurrence",
            hint=f"layers with attention: {', '.join(map(str, looking)) or 'none'}",
        )
    ids, decoder = subject.prompt.ids, subject.engine.loaded.decoder
    import torch

    from llmcli.insight.attention import watch_attention

    with StepProgress("attention") as bar:
        return watch_attention(
            decoder,
            torch.tensor([ids], device=decoder.device),
            layers=None if asked.layer is None else [asked.layer],
            detail=None if asked.layer is None or asked.head is None else (asked.layer, asked.head),
            special_ids=subject.reader.tokenizer.special_ids,
            name=subject.token_text,
            shown=asked.top or _TOP,
            on_progress=bar,
        )


def _lines(found: Attention, width: int | None) -> list[str]:
    lines = [
        f"layer {layer} has no attention weights: it is {kind}, a recurrence"
        for layer, kind in found.without.items()
    ]
    if found.detail is not None:
        return [*lines, *_detail(found, found.detail, width)]
    count = len(found.tokens)
    means = f"Means over the prompt's {count:,} tokens but the first. " if count > 1 else ""
    shades = f"Rows are layers, columns heads, from 0 to the most: '{_SHADES}'."
    lines += folded(means + shades, width)
    for name, about, score in _SCORES:
        known = [(one, value) for one in found.heads if (value := score(one)) is not None]
        if not known:
            lines += ["", f"{name}: the text is too short for it"]
            continue
        most = math.log2(max(count, 2)) if name == "entropy" else 1.0
        lines += ["", *folded(f"{name}, {about} (most {most:.3g}):", width), ""]
        lines += _map(found, score, most)
        best = sorted(known, key=lambda one: -one[1])[: found.shown]
        heads = "  ".join(f"{one.layer}.{one.head} {value:.3f}" for one, value in best)
        lines += folded(f"most (layer.head): {heads}", width)
    return lines


def _map(found: Attention, score: _Score, most: float) -> list[str]:
    rows: dict[int, str] = {}
    for one in found.heads:
        value = score(one)
        shade = " " if value is None else _shade(value / most)
        rows[one.layer] = rows.get(one.layer, "") + shade
    wide = len(str(max(rows)))
    return [f"{layer:>{wide}} |{shades}|" for layer, shades in rows.items()]


def _shade(value: float) -> str:
    return _SHADES[min(int(max(value, 0.0) * len(_SHADES)), len(_SHADES) - 1)]


def _detail(found: Attention, head: HeadDetail, width: int | None) -> list[str]:
    count = len(found.tokens)
    scores = next(one for one in found.heads if one.head == head.head)
    named = ((name, score(scores)) for name, _, score in _SCORES)
    told = ", ".join(f"{name} {value:.3f}" for name, value in named if value is not None)
    lines = folded(f"Layer {head.layer}, head {head.head}: {told}", width)
    lines += ["", *_square(found.tokens, head, width), ""]
    header = ("at", "token", "looks most at")
    rows = []
    for at, weights in enumerate(head.weights):
        best = sorted(range(at + 1), key=lambda key: -weights[key])[:_KEYS]
        shown = (f"{k} {quoted(found.tokens[k])} {weights[k]:.2f}" for k in best if weights[k])
        rows.append((str(at), quoted(found.tokens[at]), "  ".join(shown)))
    assert len(rows) == count
    return [*lines, *table(header, rows, width, left=(1, 2))]


def _square(tokens: Sequence[str], head: HeadDetail, width: int | None) -> list[str]:
    count, left = len(tokens), len(str(len(tokens) - 1)) + _LABEL + 2
    if width is not None and left + count + 1 > width:
        room = width - left - 1
        return folded(f"({count} keys are too many to draw in {width} columns: {room} fit)", width)
    lines = ["Rows are tokens that look, columns the same tokens looked at, in the same order:"]
    lines = folded(lines[0], width)
    wide = len(str(count - 1))
    for at, weights in enumerate(head.weights):
        shades = "".join(_shade(one) for one in weights[: at + 1])
        label = compact(tokens[at], _LABEL)
        lines.append(f"{at:>{wide}} {label}{' ' * (_LABEL - cells_wide(label))}|{shades}|")
    return lines


def _pictures(found: Attention) -> list[Svg]:
    if found.detail is not None:
        return [_head_picture(found, found.detail)]
    layers = list(dict.fromkeys(one.layer for one in found.heads))
    heads = max((one.head for one in found.heads), default=-1) + 1
    rows = [f"layer {layer}" for layer in layers]
    columns, pictures = [f"head {head}" for head in range(heads)], []
    for name, about, score in _SCORES:
        by_place = {(one.layer, one.head): score(one) for one in found.heads}
        values = [[by_place.get((layer, head)) for head in range(heads)] for layer in layers]
        most = math.log2(max(len(found.tokens), 2)) if name == "entropy" else 1.0
        pictures.append(heat_map(f"{name}: {about}", values, rows=rows, columns=columns, most=most))
    by_layer = [
        [
            (f"layer {one.layer}, head {one.head}", one.weights)
            for one in found.maps
            if one.layer == layer
        ]
        for layer in layers
    ]
    title = "every head: rows look, columns are looked at, each map scaled to its own most"
    return [*pictures, small_maps(title, by_layer, rows=rows, columns=columns)]


def _head_picture(found: Attention, head: HeadDetail) -> Svg:
    count = len(found.tokens)
    title = f"layer {head.layer}, head {head.head}"
    if count > _DRAWN:
        (whole,) = [one for one in found.maps if one.head == head.head]
        about = f"{title}: {count} tokens in stretches, rows look, columns are looked at"
        return small_maps(about, [[(title, whole.weights)]], rows=[""], size=512)
    names = [f"{at} {compact(text, _LABEL)}" for at, text in enumerate(found.tokens)]
    notes = [
        [f"{names[q]} looks at {names[k]}: {weight:.3f}" for k, weight in enumerate(row)]
        for q, row in enumerate(head.weights)
    ]
    values = [
        [weight if k <= q else None for k, weight in enumerate(row)]
        for q, row in enumerate(head.weights)
    ]
    return heat_map(
        f"{title}: rows look, columns are looked at",
        values,
        rows=names,
        columns=names,
        most=1.0,
        notes=notes,
    )


DRAWING = Drawing(compute=_compute, lines=_lines, pictures=_pictures)
