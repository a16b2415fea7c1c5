"""The attribution view: the strongest parts, layers as a whole, and the sum."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from llmcli.cli.columns import folded, table
from llmcli.cli.inspecting.asked import Asked
from llmcli.cli.inspecting.drawing import Drawing
from llmcli.cli.inspecting.subject import Subject
from llmcli.cli.inspecting.svg import Svg, heat_map
from llmcli.cli.inspecting.token_words import position_of, quoted, tokens_of
from llmcli.insight.bounds import check_between

if TYPE_CHECKING:
    from llmcli.insight.attribution import Attribution, Part

_TOP, _MOST = 10, 10_000


def _compute(subject: Subject, asked: Asked) -> Attribution:
    check_between("--top", asked.top, 1, _MOST)
    position = position_of(subject, asked.position)
    given = tokens_of(subject, asked.token, "attribution", most=1)
    token = given[0] if given else None
    ids, decoder = subject.prompt.ids, subject.engine.loaded.decoder
    import torch

    from llmcli.insight.attribution import attribute

    return attribute(
        decoder,
        torch.tensor([ids], device=decoder.device),
        position=position,
        token=token,
        name=subject.token_text,
        shown=asked.top or _TOP,
    )


def _lines(found: Attribution, width: int | None) -> list[str]:
    about = (
        f"Logit of {quoted(found.token)} (id {found.id}) after token {found.position}, "
        f"{quoted(found.after)}: {found.logit:.4f}"
    )
    if found.softcap is not None:
        about += f", from before the cap of {found.softcap:g}, which is no sum"
    ranked = sorted(found.parts, key=lambda part: -abs(part.share))
    rows = [(_name(part), f"{part.share:+.4f}") for part in ranked[: found.shown]]
    if rest := ranked[found.shown :]:
        rows.append((f"{len(rest)} other parts", f"{sum(part.share for part in rest):+.4f}"))
    rows.append(("sum, the logit", f"{sum(part.share for part in found.parts):+.4f}"))
    return [
        *folded(about, width),
        "",
        *table(("part", "adds"), rows, width),
        "",
        *_by_layer(found, width),
    ]


def _by_layer(found: Attribution, width: int | None) -> list[str]:
    sums: Counter[tuple[int | None, str]] = Counter()
    for part in found.parts:
        sums[part.layer, "bias" if part.kind in ("bias", "rounding") else part.kind] += part.share  # type: ignore[assignment]
    so_far = sum(share for (layer, _), share in sums.items() if layer is None)
    named = {"head": "heads", "mlp": "MLP"} | ({"bias": "biases"} if _has_biases(found) else {})
    rows: list[tuple[str, ...]] = [("outside of layers", *[""] * len(named), f"{so_far:+.3f}")]
    layers = sorted({layer for layer, _ in sums if layer is not None})
    for layer in layers:
        kinds = [sums[layer, kind] for kind in named]
        so_far += sum(kinds)
        rows.append((f"layer {layer}", *(f"{one:+.3f}" for one in (*kinds, so_far))))
    return table(("", *named.values(), "so far"), rows, width)


def _has_biases(found: Attribution) -> bool:
    """Whether any layer has one that adds something."""
    return any(part.kind == "bias" and part.layer is not None for part in found.parts)


def _pictures(found: Attribution) -> list[Svg]:
    layers = sorted({part.layer for part in found.parts if part.layer is not None})
    heads = max((part.head or 0 for part in found.parts), default=0) + 1
    names = [*(f"head {head}" for head in range(heads)), "MLP"]
    names += ["biases"] * _has_biases(found)
    shares: dict[tuple[int | None, str], float] = {}
    for part in found.parts:
        column = {"head": f"head {part.head}", "mlp": "MLP"}.get(part.kind, "biases")
        shares[part.layer, column] = shares.get((part.layer, column), 0.0) + part.share
    title = f"what adds to the logit of {quoted(found.token)} after {quoted(found.after)}"
    values = [[shares.get((layer, name)) for name in names] for layer in layers]
    return [heat_map(title, values, rows=[f"layer {layer}" for layer in layers], columns=names)]


def _name(part: Part) -> str:
    where = "" if part.layer is None else f"layer {part.layer} "
    match part.kind:
        case "token":
            return "token embedding"
        case "position":
            return "position embedding"
        case "head":
            return f"{where}head {part.head}"
        case "mlp":
            return f"{where}MLP"
        case "bias":
            return f"{where}bias of the {part.of}"
    return "rounding in the model"


DRAWING = Drawing(compute=_compute, lines=_lines, pictures=_pictures)
