"""One prompt among many: what is asked, its text while it runs, what became of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from llmcli.engine.generation import EndReason
from llmcli.engine.prompt import Prompt
from llmcli.errors import LlmcliError
from llmcli.generation.token import Token
from llmcli.text.stream import TextFeed


@dataclass(frozen=True, slots=True, kw_only=True)
class RowRequest:
    """`prompt` is an error where none could be made. `seed` is None where nothing is drawn."""

    prompt: Prompt | LlmcliError
    seed: int | None
    max_new_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RowResult:
    """What became of the request at place `row`; with an `error`, what there was before it."""

    row: int
    ids: tuple[int, ...] = ()
    text: str = ""
    finish_reason: EndReason | None = None
    stop_string: str | None = None
    error: LlmcliError | None = None


@dataclass(slots=True)
class RowText:
    """A row's answer so far."""

    feed: TextFeed
    ids: list[int] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)

    def add(self, token: Token) -> None:
        self.ids.append(token.id)
        self.pieces.append(self.feed.feed(token.id))

    def result(
        self, row: int, reason: EndReason | None, error: LlmcliError | None = None
    ) -> RowResult:
        """The row as it ended; a stop string that ends the text goes before any other reason."""
        if not self.feed.stopped:
            self.pieces.append(self.feed.finish())
        return RowResult(
            row=row,
            ids=tuple(self.ids),
            text="".join(self.pieces),
            finish_reason="stop" if self.feed.stopped and not error else reason,
            stop_string=self.feed.matched,
            error=error,
        )
