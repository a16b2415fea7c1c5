"""One turn of a chat, from its message to its numbers, as plain data.

Must not know how a turn is run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from llmcli.chat.budget import Overflow
from llmcli.chat.turn import Turn
from llmcli.engine.generation import Generation
from llmcli.engine.options import GenerateOptions
from llmcli.engine.prompt import Prompt
from llmcli.engine.session import Session
from llmcli.errors import StorageError
from llmcli.generation.limit import Limit


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatOptions:
    """`generate.cache` none is `--no-kv-cache`; `generate.top_logprobs` is raised as `top` needs.

    `overflow` says what becomes of a history that the context cannot hold; `generate.overflow` is
    not read. `shift` drops whole turns of a prompt as `drop-oldest` does, and lets a reply go on
    where the context ends.
    """

    generate: GenerateOptions = field(default_factory=GenerateOptions)
    overflow: Overflow = "drop-oldest"


@dataclass(frozen=True, slots=True, kw_only=True)
class Meter:
    """Tokens of the context: `used` by a prompt, `reserve` kept for the reply to it."""

    used: int
    context: int
    reserve: int

    def with_used(self, tokens: int) -> Meter:
        """With so many tokens in use, or full: what is too much, the next turn leaves out."""
        return replace(self, used=min(tokens, self.context))


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A turn that can be run: nothing has been computed or changed yet.

    `dropped` are the turns, oldest first, that the model will not see; `newly_dropped` those
    among them that the turn before still saw, so that a warning need name each only once.
    `limit` says what goes where the reply outgrows the context; None where it cannot, or stops.
    `endangered` are the turns that it may then cost, of which no earlier turn has warned.
    """

    user: str
    parent: int | None
    prompt: Prompt
    meter: Meter
    dropped: tuple[Turn, ...] = ()
    newly_dropped: tuple[Turn, ...] = ()
    limit: Limit | None = None
    endangered: tuple[Turn, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """A turn that is in the conversation now, and what it cost.

    `kept` prompt tokens were in a cache, `prefilled` were computed, `new` generated; `rate` is
    new tokens a second after the first, None for fewer than two. `unsaved` says why the turn is
    in memory only, or is None.
    """

    turn: Turn
    kept: int
    prefilled: int
    new: int
    rate: float | None
    meter: Meter
    generation: Generation
    unsaved: StorageError | None = None


class Reply:
    """A running turn: iterate it once for the pieces of text; then `commit`, `cut` or `rollback`.

    `generation` has ids, logprobs, statistics and the settings in use.
    """

    def __init__(self, prepared: Prepared, generation: Generation, session: Session) -> None:
        self.prepared = prepared
        self.generation = generation
        self.session = session

    def __iter__(self) -> Iterator[str]:
        return iter(self.generation)
