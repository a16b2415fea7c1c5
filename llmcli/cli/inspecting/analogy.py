"""The analogy view: arithmetic on embeddings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmcli.cli.columns import folded
from llmcli.cli.inspecting.asked import Asked
from llmcli.cli.inspecting.drawing import Drawing
from llmcli.cli.inspecting.near_rows import near_rows
from llmcli.cli.inspecting.subject import Subject
from llmcli.cli.inspecting.token_words import quoted, tokens_of
from llmcli.insight.bounds import check_between

if TYPE_CHECKING:
    from llmcli.insight.nearest import Analogy

_TOP, _MOST = 10, 10_000


def _compute(subject: Subject, asked: Asked) -> Analogy:
    check_between("--top", asked.top, 1, _MOST)
    first, second, third = tokens_of(subject, asked.token, "analogy", most=3, least=3)
    decoder = subject.engine.loaded.decoder
    from llmcli.insight.nearest import analogy

    return analogy(decoder, (first, second, third), name=subject.token_text, top=asked.top or _TOP)


def _lines(found: Analogy, width: int | None) -> list[str]:
    a, b, c = (quoted(one.token) for one in found.inputs)
    cosines = ", ".join(f"{quoted(one.token)} {one.cosine:+.3f}" for one in found.inputs)
    about = (
        f"{b} - {a} + {c}, of rows of unit length: as {b} is to {a}, so what is to {c}? The three "
        f"themselves are left out; in the embedding their cosines are {cosines}."
    )
    return [*folded(about, width), *near_rows(found.found, width, tied=found.tied)]


DRAWING = Drawing(compute=_compute, lines=_lines)
