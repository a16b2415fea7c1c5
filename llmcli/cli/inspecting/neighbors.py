"""The neighbors view: the nearest tokens, in one matrix or in both."""

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
    from llmcli.insight.nearest import Neighbors

_TOP, _MOST = 10, 10_000


def _compute(subject: Subject, asked: Asked) -> Neighbors:
    check_between("--top", asked.top, 1, _MOST)
    (token,) = tokens_of(subject, asked.token, "neighbors", most=1, least=1)
    decoder = subject.engine.loaded.decoder
    from llmcli.insight.nearest import neighbors

    return neighbors(decoder, token, name=subject.token_text, top=asked.top or _TOP)


def _lines(found: Neighbors, width: int | None) -> list[str]:
    about = (
        f"Nearest to {quoted(found.token)} (id {found.id}), by the cosine between rows; its own "
        f"is {found.length:.3f} long."
    )
    return [*folded(about, width), *near_rows(found.found, width, tied=found.tied)]


DRAWING = Drawing(compute=_compute, lines=_lines)
