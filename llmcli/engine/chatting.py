"""Chat: runs the turns of a conversation on an engine, and keeps its caches from turn to turn.

Must not know terminals, nor how a conversation is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

from llmcli.chat.budget import Budget, Overflow, fit
from llmcli.chat.conversation import Conversation
from llmcli.chat.turn import Ended, Said, Turn, now
from llmcli.engine.chat_limit import shift_limit
from llmcli.engine.chat_turn import ChatOptions, Done, Meter, Prepared, Reply
from llmcli.engine.engine import Engine
from llmcli.engine.generation import Generation
from llmcli.engine.overflow import check_limits, check_shift, effective_context
from llmcli.engine.pool import SessionPool
from llmcli.engine.prompt import Prompt
from llmcli.engine.settings import Settings
from llmcli.errors import GenerationError, StorageError, TemplateError, UsageError
from llmcli.generation.limit import Limit
from llmcli.generation.reads import reads
from llmcli.text.chat_prompt import ChatPrompt, build_chat_ids
from llmcli.text.detokenizer import Detokenizer, hidden_ids
from llmcli.text.stop_strings import StopStrings
from llmcli.text.stream import stream_text
from llmcli.text.system_role import require_system_role

__all__ = ["Chat", "ChatOptions", "Done", "Meter", "Overflow", "Prepared", "Reply"]

# How many candidates of each token are kept for `top`.
CANDIDATES = 10


class Chat:
    """One conversation on one engine.

    A turn is `prepare` (or `prepare_again`, `prepare_edit`), `run`, then one of `commit`, `cut`
    and `rollback`. Until commit or cut the conversation is as it was.

    Each prompt is the template's rendering of the whole history, replies as text, so a turn equals
    that of a fresh process; caches spare the ids that a prompt shares with earlier ones.
    """

    def __init__(
        self,
        engine: Engine,
        conversation: Conversation,
        options: ChatOptions | None = None,
        *,
        model: str,
    ) -> None:
        """`model` is the name that turns are recorded under.

        Raises UsageError where the checkpoint has no chat template, and nothing else is guessed
        in its place; TemplateError where the template has no place for the system message.
        """
        self.engine = engine
        self.conversation = conversation
        self.options = options or ChatOptions()
        self.model = model
        self._check(engine, conversation.system, self.options)
        self._pool = self._new_pool()
        self._left_out: frozenset[int] = frozenset()
        self._warned: set[int] = set()
        self._last: Reply | None = None

    # Turns

    def prepare(self, user: str) -> Prepared:
        """The next turn. Raises GenerationError with the numbers where it cannot fit, and
        TemplateError where the template refuses it."""
        return self._prepare(user, self.conversation.place.turn)

    def prepare_again(self) -> Prepared:
        """The last turn's message once more, for another reply: a sibling of it (`/regen`)."""
        last = self.conversation.tip
        if last is None:
            raise UsageError("there is no turn to answer anew", hint="say something first")
        return self._prepare(last.said.user, last.parent)

    def prepare_edit(self, number: int, user: str) -> Prepared:
        """A sibling of turn `number` with another message (`/edit N`)."""
        return self._prepare(user, self.conversation.turn(number).parent)

    def run(
        self, prepared: Prepared, *, on_prefill: Callable[[int, int], None] | None = None
    ) -> Reply:
        """A reply that has not begun; iterating it runs it."""
        session = self._pool.take(prepared.prompt.ids, after=prepared.parent)
        options = replace(
            self.options.generate,
            overflow="stop" if prepared.limit is None else "shift",
            limit=prepared.limit,
            show_thought_marks=True,
        )
        if "top_logprobs" in reads(self.settings().strategy):
            options = replace(options, top_logprobs=max(options.top_logprobs, CANDIDATES))
        generation = self.engine.generate(
            prepared.prompt, options, session=session, on_prefill=on_prefill
        )
        self._left_out = frozenset(turn.number for turn in prepared.dropped)
        self._warned |= {turn.number for turn in prepared.endangered}
        return Reply(prepared, generation, session)

    def commit(self, reply: Reply) -> Done:
        """Put the finished turn into the conversation."""
        generation = reply.generation
        ended: Ended = "cut"
        if generation.finish_reason != "interrupted":
            ended = generation.finish_reason
        said = Said(
            user=reply.prepared.user,
            reply=self._reply_text(generation),
            ended=ended,
            time=now(),
            model=self.model,
            strategy=generation.settings.strategy,
        )
        unsaved = None
        try:
            self.conversation.add(said, parent=reply.prepared.parent)
        except StorageError as error:
            unsaved = error
        turn = self.conversation.turns[-1]
        self._pool.mark(reply.session, turn.number)
        self._last = reply
        stats = generation.stats
        return Done(
            turn=turn,
            kept=stats.prompt_tokens - stats.prefilled_tokens if stats.new_tokens else 0,
            prefilled=stats.prefilled_tokens,
            new=stats.new_tokens,
            rate=stats.decode_rate,
            meter=reply.prepared.meter.with_used(
                stats.prompt_tokens + stats.new_tokens - stats.dropped_tokens
            ),
            generation=generation,
            unsaved=unsaved,
        )

    def cut(self, reply: Reply) -> Done | None:
        """After Ctrl-C: keep what was generated, marked as cut.

        None where there was no text yet: then the turn is rolled back. `done.turn.said.reply` is
        the whole text, of which the end may not have been shown.
        """
        reply.generation.finish()
        if not reply.generation.text:
            self.rollback(reply)
            return None
        return self.commit(reply)

    def rollback(self, reply: Reply) -> None:  # noqa: ARG002
        """After an error: the conversation stays as it was before the turn.

        The caches need no more than the ids that they hold to be right the next time.
        """
        self._last = None

    # What may change between turns

    def change(self, options: ChatOptions) -> None:
        """Use these from the next turn on.

        Raises UsageError, and changes nothing, where they contradict each other or the checkpoint.
        """
        self._check(self.engine, None, options)
        cache = self.options.generate.cache
        self.options = options
        if options.generate.cache != cache:
            self._pool = self._new_pool()

    def set_cache(self, on: bool) -> None:
        """With False each token is computed from all before it; what was cached is given up."""
        kind = self.options.generate.cache
        wanted = ("auto" if kind == "none" else kind) if on else "none"
        generate = replace(self.options.generate, cache=wanted)
        self.change(replace(self.options, generate=generate))

    def set_system(self, text: str | None) -> None:
        """As Conversation.set_system, after a look whether the template takes a system message.

        Raises TemplateError where it refuses one, or would leave it out in silence.
        """
        self._check(self.engine, text, self.options)
        self.conversation.set_system(text)

    def switch_model(self, engine: Engine, *, model: str) -> None:
        """Go on with another checkpoint.

        Raises, and changes nothing, where it has no template, or none for the system message.
        """
        self._check(engine, self.conversation.system, self.options)
        self.engine, self.model = engine, model
        self._pool = self._new_pool()
        self._last = None

    def switch_conversation(self, conversation: Conversation) -> None:
        """Go on with another conversation (`/load`); caches stay, for what both share."""
        self._check(self.engine, conversation.system, self.options)
        self.conversation = conversation
        self._pool.forget_turns()
        self._left_out = frozenset()
        self._warned.clear()
        self._last = None

    # What a user may ask

    def settings(self) -> Settings:
        """What the next turn would run with, each value with its source.

        A seed that is not given is 0 here, and drawn for each turn.
        """
        return self.engine.settings(self.options.generate.flags)

    @property
    def context(self) -> int:
        """How many tokens a prompt and its reply may have together."""
        return self._budget().context

    def meter(self) -> Meter:
        """How full the context is with the conversation as it stands, no new message in it."""
        path = self.conversation.path()
        budget = self._budget()
        used = 0
        if path:
            gone = sum(turn.number in self._left_out for turn in path[:-1])
            used = self._length(path[-1], drop=gone)
        empty = Meter(used=0, context=budget.context, reserve=budget.reserve)
        return empty.with_used(used)

    def tokens(self, text: str) -> list[tuple[int, str]]:
        """The ids of a text, each with its own text. Control tokens typed in it are text."""
        tokenizer = self.engine.tokenizer
        ids = tokenizer.encode_raw(text, bos=False)
        return [(token, tokenizer.token_text(token)) for token in ids]

    def top(self) -> list[tuple[int, str, float]]:
        """The likeliest candidates (id, text, logprob) for the last token of the last reply.

        Raises UsageError where there is none, or where the strategy does not report them.
        """
        if self._last is None or not self._last.generation.tokens:
            raise UsageError("there is no token yet", hint="candidates are those of a reply")
        generation = self._last.generation
        top = generation.tokens[-1].top
        if not top:
            raise UsageError(
                f"strategy {generation.settings.strategy} does not report candidates",
                hint="use another strategy for the next turn",
            )
        text = self.engine.tokenizer.token_text
        return [(token, text(token), logprob) for token, logprob in top]

    def caches(self) -> list[tuple[int, int]]:
        """Of each cache held: tokens and bytes, the one used last first."""
        return self._pool.sizes()

    def _prepare(self, user: str, parent: int | None) -> Prepared:
        self._check(self.engine, self.conversation.system, self.options)
        history = () if parent is None else self.conversation.path(parent)
        rendered: dict[int, ChatPrompt] = {}

        def count(drop: int) -> int:
            rendered[drop] = self._render(parent, drop=drop, user=user)
            return len(rendered[drop].ids)

        budget = self._budget()
        found = fit(len(history), count, budget=budget, overflow=self.options.overflow)
        prompt = rendered[found.drop]
        if not prompt.ids:
            raise GenerationError(
                "the chat template makes no tokens of this conversation",
                hint="give another one with --template",
            )
        dropped = history[: found.drop]
        limit, may_go = None, found.drop
        # How much a reply may have too many
        over = found.used + self.settings().max_new_tokens - budget.context
        if _overflow(self.options) == "shift" and over > 0:

            def ids(drop: int) -> Sequence[int]:
                if drop not in rendered:
                    count(drop)
                return rendered[drop].ids

            limit, may_go = shift_limit(
                ids, drop=found.drop, turns=len(history), most=over, size=budget.context
            )
        return Prepared(
            user=user,
            parent=parent,
            prompt=Prompt(tuple(prompt.ids), prompt.text, is_chat=True),
            meter=Meter(used=found.used, context=budget.context, reserve=budget.reserve),
            dropped=dropped,
            newly_dropped=tuple(turn for turn in dropped if turn.number not in self._left_out),
            limit=limit,
            endangered=tuple(
                turn for turn in history[found.drop : may_go] if turn.number not in self._warned
            ),
        )

    def _render(self, parent: int | None, *, drop: int, user: str | None) -> ChatPrompt:
        return build_chat_ids(
            self.engine.tokenizer,
            self.engine.reader.chat_template(),
            self.conversation.messages(parent=parent, drop=drop, user=user),
            add_generation_prompt=user is not None,
        )

    def _length(self, last: Turn, *, drop: int) -> int:
        """Tokens of the history up to `last`, without the oldest `drop` turns."""
        try:
            return len(self._render(last.number, drop=drop, user=None).ids)
        except TemplateError:
            # Some templates take nothing but a message to be answered
            asked = self._render(last.parent, drop=drop, user=last.said.user)
            return len(asked.ids) + len(self.tokens(last.said.reply))

    def _budget(self) -> Budget:
        context = effective_context(self.engine.loaded.spec, self.options.generate.max_context)
        return Budget.of(context, self.settings().max_new_tokens)

    def _reply_text(self, generation: Generation) -> str:
        """What later prompts hold, which special tokens that were shown must not change."""
        options = self.options.generate
        if not options.show_special:
            return generation.text
        ending = [stop.id for stop in self.engine.stop_ids]
        hidden = hidden_ids(
            self.engine.tokenizer, ending, show_special=False, show_thought_marks=True
        )
        detokenizer = Detokenizer(self.engine.tokenizer, generation.prompt.ids, hidden=hidden)
        return "".join(
            stream_text(generation.ids, detokenizer, StopStrings(generation.stop_strings))
        )

    def _new_pool(self) -> SessionPool:
        return SessionPool(lambda: self.engine.session(self.options.generate.cache))

    @staticmethod
    def _check(engine: Engine, system: str | None, options: ChatOptions) -> None:
        template = engine.reader.chat_template()
        if system is not None:
            require_system_role(engine.tokenizer, template)
        generate = options.generate
        settings = engine.settings(generate.flags)
        context = effective_context(engine.loaded.spec, generate.max_context)
        check_limits(
            generate.max_context,
            _overflow(options),
            settings.strategy,
            cached=generate.cache != "none",
        )
        kind = engine.session(generate.cache).kind
        if _overflow(options) == "shift":
            check_shift(engine.loaded.spec, Limit(context), kind)
        StopStrings(generate.stop_strings)


def _overflow(options: ChatOptions) -> Literal["stop", "shift"]:
    """What a reply does at the end of the context."""
    return "shift" if options.overflow == "shift" else "stop"
