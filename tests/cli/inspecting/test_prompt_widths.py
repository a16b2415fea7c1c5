"""Views of a prompt on narrow terminals: no line is wider, whatever its tokens hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from llmcli.cli.columns import cells_wide
from llmcli.cli.inspecting.table import find_views, load_drawing
from llmcli.cli.inspecting.trace import Traced
from llmcli.insight.attention import watch_attention
from llmcli.insight.attribution import attribute
from llmcli.insight.decode_step import decode_step
from llmcli.insight.lens import look
from llmcli.insight.trace import trace
from tests.insight.decoders import ids_for
from tests.tiny import random_decoder

DECODER = random_decoder()
IDS = ids_for(DECODER.spec)


def _name(id_: int) -> str:
    return f"\n\x1b[{id_}"


RESULTS: dict[str, tuple[str, Callable[[], Any]]] = {
    "attention": ("attention", lambda: watch_attention(DECODER, IDS, name=_name)),
    "head": (
        "attention",
        lambda: watch_attention(DECODER, IDS, name=_name, layers=[1], detail=(1, 2)),
    ),
    "attribution": ("attribution", lambda: attribute(DECODER, IDS, position=4, name=_name)),
    "lens": ("lens", lambda: look(DECODER, IDS, positions=range(9), name=_name)),
    "lens-one": ("lens", lambda: look(DECODER, IDS, positions=[3], name=_name)),
    "trace": ("trace", lambda: Traced(forward=trace(DECODER, IDS, name=_name))),
    "step": (
        "trace",
        lambda: Traced(step=decode_step(DECODER, IDS, step=2, kind="growing", name=_name)),
    ),
}


@pytest.mark.parametrize("width", [40, 60, 80, 132])
@pytest.mark.parametrize("case", RESULTS)
def test_lines_fit(case: str, width: int) -> None:
    view, make = RESULTS[case]
    (row,) = find_views([view])
    for line in load_drawing(row).lines(make(), width):
        assert cells_wide(line) <= width, line
        assert line.isprintable(), repr(line)
