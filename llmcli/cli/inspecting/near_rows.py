"""Lists of near tokens, one for each matrix that was searched."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from llmcli.cli.columns import table
from llmcli.cli.inspecting.token_words import quoted

if TYPE_CHECKING:
    from llmcli.insight.nearest import Nearest


def near_rows(found: Sequence[Nearest], width: int | None, *, tied: bool) -> list[str]:
    """A heading and a table a matrix."""
    lines: list[str] = []
    for one in found:
        title = "In the embedding, which is the head too" if tied else f"In the {one.matrix}"
        lines += ["", f"{title}:", ""]
        if one.zero:
            lines.append("there is no direction: all numbers are 0")
            continue
        rows = [(quoted(near.token), str(near.id), f"{near.cosine:+.3f}") for near in one.near]
        lines += table(("token", "id", "cosine"), rows, width)
    return lines
