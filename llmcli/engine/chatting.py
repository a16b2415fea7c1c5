"""Chat: runs the turns of a conversation on an engine, and keeps its caches from turn to turn.

Must not know terminals, nor how a conversation is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from llmcli.chat.conversation import Conversation
from llmcli.chat.turn import Turn
from llmcli.engine.engine import Engine, GenerateOptions
from llmcli.engine.generation import Generation
from llmcli.engine.prompt import Prompt
from llmcli.engine.settings import Settings

Overflow = Literal["drop-oldest", "stop"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatOptions:
    """`generate.cache` none is `--no-kv-cache`; `generate.top_logprobs` is raised as `top` needs.

    `overflow` says what becomes of a history that the context cannot hold.
    """

    generate: GenerateOptions = field(default_factory=GenerateOptions)
    overflow: Overflow = "drop-oldest"


@dataclass(frozen=True, slots=True, kw_only=True)
class Meter:
    """Tokens of the context: `used` by a prompt, `reserve` kept for the reply to it."""

    used: int
    context: int
    reserve: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A turn that can be run: nothing has been computed or changed yet.

    `dropped` are the turns, oldest first, that the model will not see; `newly_dropped` those
    among them that the turn before still saw, so that a warning need name each only once.
    """

    user: str
    parent: int | None
    prompt: Prompt
    meter: Meter
    dropped: tuple[Turn, ...] = ()
    newly_dropped: tuple[Turn, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """A turn that is in the conversation now, and what it cost.

    `kept` prompt tokens were in a cache, `prefilled` were computed, `new` generated; `rate` is
    new tokens a second after the first, None for fewer than two.
    """

    turn: Turn
    kept: int
    prefilled: int
    new: int
    rate: float | None
    meter: Meter
    generation: Generation


class Reply:
    """A running turn: iterate it once for the pieces of text; then `commit`, `cut` or `rollback`.

    `generation` has ids, logprobs, statistics and the settings in use.
    """

    prepared: Prepared
    generation: Generation

    def __iter__(self) -> Iterator[str]:
        raise NotImplementedError


class Chat:
    """One conversation on one engine.

    A turn is `prepare` (or `prepare_again`, `prepare_edit`), `run`, then one of `commit`, `cut`
    and `rollback`. Until commit or cut the conversation is as it was.

    Raises UsageError where the checkpoint has no chat template; nothing else is guessed in its
    place.
    """

    def __init__(
        self,
        engine: Engine,
        conversation: Conversation,
        options: ChatOptions | None = None,
        *,
        model: str,
    ) -> None:
        """`model` is the name that turns are recorded under."""
        raise NotImplementedError

    engine: Engine
    conversation: Conversation
    options: ChatOptions
    model: str

    # Turns

    def prepare(self, user: str) -> Prepared:
        """The next turn. Raises GenerationError with the numbers where it cannot fit, TemplateError
        where the template refuses it."""
        raise NotImplementedError

    def prepare_again(self) -> Prepared:
        """The last turn's message once more, for another reply: a sibling of it (`/regen`)."""
        raise NotImplementedError

    def prepare_edit(self, number: int, user: str) -> Prepared:
        """A sibling of turn `number` with another message (`/edit N`)."""
        raise NotImplementedError

    def run(
        self, prepared: Prepared, *, on_prefill: Callable[[int, int], None] | None = None
    ) -> Reply:
        """A reply that has not begun; iterating it runs it."""
        raise NotImplementedError

    def commit(self, reply: Reply) -> Done:
        """Put the finished turn into the conversation."""
        raise NotImplementedError

    def cut(self, reply: Reply) -> Done | None:
        """After Ctrl-C: keep what was generated, marked as cut. None where there was no text yet:
        then the turn is rolled back. `done.turn.said.reply` is the whole text, of which the end may
        not have been shown."""
        raise NotImplementedError

    def rollback(self, reply: Reply) -> None:
        """After an error: the conversation stays as it was before the turn."""
        raise NotImplementedError

    # What may change between turns

    def change(self, options: ChatOptions) -> None:
        """Use these from the next turn on. Raises UsageError, and changes nothing, where they
        contradict each other or the checkpoint."""
        raise NotImplementedError

    def set_cache(self, on: bool) -> None:
        """With False each token is computed from all before it; what was cached is given up."""
        raise NotImplementedError

    def set_system(self, text: str | None) -> None:
        """As Conversation.set_system, after a look whether the template takes a system message:
        raises TemplateError where it refuses one, or leaves it out in silence."""
        raise NotImplementedError

    def switch_model(self, engine: Engine, *, model: str) -> None:
        """Go on with another checkpoint. Raises, and changes nothing, where it has no template."""
        raise NotImplementedError

    def switch_conversation(self, conversation: Conversation) -> None:
        """Go on with another conversation (`/load`); caches stay, for what both share."""
        raise NotImplementedError

    # What a user may ask

    def settings(self) -> Settings:
        """What the next turn would run with, each value with its source."""
        raise NotImplementedError

    def meter(self) -> Meter:
        """How full the context is with the conversation as it stands, no new message in it."""
        raise NotImplementedError

    def tokens(self, text: str) -> list[tuple[int, str]]:
        """The ids of a text, each with its own text. Control tokens typed in it are text."""
        raise NotImplementedError

    def top(self) -> list[tuple[int, str, float]]:
        """The likeliest candidates (id, text, logprob) for the last token of the last reply.

        Raises UsageError where there is none, or where the strategy does not report them.
        """
        raise NotImplementedError

    def caches(self) -> list[tuple[int, int]]:
        """Of each cache held: tokens and bytes."""
        raise NotImplementedError
