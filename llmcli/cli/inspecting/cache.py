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

_PACKED = (
    ", until all but the newest are packed into {} a token; a prompt's last piece of up to 512 "
    "tokens waits for the token after it"
)
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
    lines = [*folded(_about(found), width), ""]
    rows = [
        (one.layers, str(one.number), _holds(one), _each(one), *map(in_bytes, one.bytes))
        for one in found.layers
    ]
    rows.append(("all", str(sum(one.number for one in found.layers)), "", "", *_all(found.total)))
    if found.kind is None:
        rows.append(("as allocated", "", "", "", *_all(found.allocated)))
    header = ("LAYERS", "NUMBER", "A LAYER HOLDS", "A TOKEN ADDS", *at)
    lines += table(header, rows, width, left=(0, 2))
    room = [(one.layers, *(_room(one, n) for n in one.capacity)) for one in found.layers]
    if all(one.capacity for one in found.layers):
        lines += ["", "Room that one layer has, in tokens:", ""]
        lines += table(("LAYERS", *at), room, width)
    sharing = "The same decoder with other ways of sharing keys and values:"
    lines += ["", *folded(sharing, width), ""]
    designs = [
        (one.name, in_bytes(one.bytes_per_token), *map(in_bytes, one.bytes))
        for one in found.designs
    ]
    return lines + table(("DESIGN", "A TOKEN", *at), designs, width)


def _about(found: CacheSizes) -> str:
    each, exact = in_bytes(found.bytes_per_token), in_bytes(found.exact_per_token)
    about = f"{exact} a token, with keys and values of {8 * found.bytes_per_element} bits"
    if found.kind is not None:
        about = f"--cache {found.kind}: {about}"
        if found.kind.startswith("quantized"):
            packed = found.bytes_per_token < found.exact_per_token
            about += _PACKED.format(each) if packed else ", as layers with a window pack nothing"
        about += ". All bytes are with the room that such a cache takes in advance"
    return f"{about}; the context is {found.context:,} tokens"


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
    kind = f", {found.kind}," if found.kind else ""
    return [
        bars(
            f"{found.name}: KV cache{kind} at {length:,} tokens",
            [(one.name, float(one.bytes[at]), in_bytes(one.bytes[at])) for one in found.designs],
        )
        for at, length in enumerate(found.contexts)
    ]


DRAWING = Drawing(compute=_compute, lines=_lines, pictures=_pictures)
