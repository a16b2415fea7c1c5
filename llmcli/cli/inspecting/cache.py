"""The cache view as text and as bars."""

from __future__ import annotations

from llmcli.cli.columns import folded, table
from llmcli.cli.inspecting.asked import Asked
from llmcli.cli.inspecting.drawing import Drawing
from llmcli.cli.inspecting.subject import Subject
from llmcli.cli.inspecting.svg import Svg, bars
from llmcli.cli.sizes import in_bytes
from llmcli.insight.bounds import check_between
from llmcli.insight.kv import CacheSizes, LayerCache, cache_sizes, default_contexts

_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


def _compute(subject: Subject, asked: Asked) -> CacheSizes:
    spec = subject.facts.spec
    for length in asked.context or ():
        check_between("--context", length, 1, spec.context)
    contexts = tuple(dict.fromkeys(asked.context or ())) or default_contexts(spec)
    element = _BYTES.get(subject.loading.dtype or "", 2)
    kind = subject.loading.cache
    return cache_sizes(subject.facts, contexts=contexts, element=element, kind=kind)


def _lines(found: CacheSizes, width: int | None) -> list[str]:
    at = [f"AT {length:,}" for length in found.contexts]
    lines = folded(
        f"{in_bytes(found.bytes_per_token)} a token, with keys and values of "
        f"{8 * found.bytes_per_element} bits; the context is {found.context:,} tokens",
        width,
    )
    lines.append("")
    rows = [
        (one.layers, str(one.number), _holds(one), _each(one), *map(in_bytes, one.bytes))
        for one in found.layers
    ]
    rows.append(("all", str(sum(one.number for one in found.layers)), "", "", *_all(found.total)))
    rows.append(("as allocated", "", "", "", *_all(found.allocated)))
    if found.kind is not None:
        rows.append((f"--cache {found.kind}", "", "", "", *_all(found.of_kind)))
    header = ("LAYERS", "NUMBER", "A LAYER HOLDS", "A TOKEN ADDS", *at)
    lines += table(header, rows, width, left=(0, 2))
    lines += ["", "Room that one layer has, in tokens:", ""]
    room = [(one.layers, *(_room(one, n) for n in one.capacity)) for one in found.layers]
    lines += table(("LAYERS", *at), room, width)
    sharing = "The same decoder with other ways of sharing keys and values:"
    lines += ["", *folded(sharing, width), ""]
    designs = [
        (one.name, in_bytes(one.bytes_per_token), *map(in_bytes, one.bytes))
        for one in found.designs
    ]
    return lines + table(("DESIGN", "A TOKEN", *at), designs, width)


def _all(sizes: tuple[int, ...]) -> list[str]:
    return [in_bytes(size) for size in sizes]


def _holds(one: LayerCache) -> str:
    if one.kind == "state":
        return f"a state of {in_bytes(one.state_bytes)}"
    return "all keys" if one.holds is None else f"the last {one.holds:,}"


def _each(one: LayerCache) -> str:
    return "nothing" if one.kind == "state" else in_bytes(one.bytes_per_token)


def _room(one: LayerCache, tokens: int) -> str:
    return "any" if one.kind == "state" else f"{tokens:,}"


def _pictures(found: CacheSizes) -> list[Svg]:
    return [
        bars(
            f"{found.name}: KV cache at {length:,} tokens",
            [(one.name, float(one.bytes[at]), in_bytes(one.bytes[at])) for one in found.designs],
        )
        for at, length in enumerate(found.contexts)
    ]


DRAWING = Drawing(compute=_compute, lines=_lines, pictures=_pictures)
