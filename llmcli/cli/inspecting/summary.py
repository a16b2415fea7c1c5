"""The summary view as text."""

from __future__ import annotations

from llmcli.cli.columns import folded, pairs
from llmcli.cli.inspecting.asked import Asked
from llmcli.cli.inspecting.drawing import Drawing
from llmcli.cli.inspecting.subject import Subject
from llmcli.cli.sizes import in_bytes
from llmcli.insight.summary import Summary, summarise
from llmcli.plurals import counted


def _compute(subject: Subject, _: Asked) -> Summary:
    return summarise(subject.facts)


def _lines(found: Summary, width: int | None) -> list[str]:
    rows = [
        ("name", found.name),
        ("family", found.family),
        ("parameters", f"{found.parameters:,}"),
        ("layers", f"{found.layers} of width {found.hidden_size:,}"),
        ("vocabulary", f"{found.vocab_size:,} tokens{', tied head' * found.tied_head}"),
        ("context", f"{found.context:,} tokens"),
        ("attention", found.attention),
        ("", found.windows),
        *zip(("positions", *[""] * len(found.positions)), found.positions, strict=False),
        ("norm", found.norm),
        ("MLP", found.mlp),
    ]
    if found.experts is not None:
        rows.append(("experts", found.experts))
    if found.extras:
        rows.append(("also", ", ".join(found.extras)))
    if found.bytes_by_dtype is not None:
        stored = ", ".join(
            f"{in_bytes(size)} {kind}" for kind, size in found.bytes_by_dtype.items()
        )
        rows.append(("stored", f"{stored} in {counted(found.tensors or 0, 'tensor')}"))
    if found.quantized_bits is not None:
        rows.append(("quantised", _quantised(found)))
    rows.append(("KV cache", f"{in_bytes(found.kv_bytes_per_token)} a token in 16 bits"))
    rows += [("origin", found.origin)] if found.origin else []
    rows += [("licence", found.licence)] if found.licence else []
    lines = pairs(rows, width)
    for label, texts in (("note", [found.note]), ("warning", found.warnings)):
        for text in texts:
            lines += ["", *folded(text, width, first=f"{label}: ")] if text else []
    return lines


def _quantised(found: Summary) -> str:
    text = f"most matrices to {found.quantized_bits} bits"
    if found.bits_per_parameter is None:
        return text
    return f"{text}; {found.bits_per_parameter:.3g} bits a number with scales and all else"


DRAWING = Drawing(compute=_compute, lines=_lines)
