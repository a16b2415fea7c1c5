"""Drawing: how one view is computed and shown. Must not know any single view."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from llmcli.cli.inspecting.asked import Asked
    from llmcli.cli.inspecting.subject import Subject
    from llmcli.cli.inspecting.svg import Svg

R = TypeVar("R")


def _never(_: object) -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing(Generic[R]):
    """`compute` gives plain data of dataclasses; `lines` draws it as text for a width in columns.

    The width is None where nothing is to be fitted: in a pipe, a file, a page. `pictures` is
    there where a picture says more. `failed` tells of a result that makes the exit code 1, and
    `interrupted` of one that Ctrl-C cut short.
    """

    compute: Callable[[Subject, Asked], R]
    lines: Callable[[R, int | None], list[str]]
    pictures: Callable[[R], list[Svg]] | None = None
    failed: Callable[[R], bool] = _never
    interrupted: Callable[[R], bool] = _never
