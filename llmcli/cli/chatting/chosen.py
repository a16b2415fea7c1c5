"""Chosen: every setting of a running chat, from the command line and from `/set`.

Must not know conversations or what the values do.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from llmcli.cli.chat_options import DEFAULT_OVERFLOW, DEFAULT_THINK, Chatting, OverflowChoice
from llmcli.cli.chatting.setting_keys import Key, setting_keys
from llmcli.cli.chatting.shown import Look
from llmcli.cli.options import Context, Ending, Loading, Prompting
from llmcli.cli.options.decoding import Decoding
from llmcli.cli.running import Request, generate_options
from llmcli.engine.flags import unread
from llmcli.errors import UsageError
from llmcli.text.grammar import Grammar

if TYPE_CHECKING:
    from llmcli.engine.chatting import ChatOptions
    from llmcli.engine.engine import Engine
    from llmcli.engine.prompt import Prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """`cached` is what `/cache` said last; `changed` are the names of the keys that `/set` set."""

    loading: Loading
    decoding: Decoding
    ending: Ending
    chatting: Chatting
    grammar: Grammar | None = None
    cached: bool | None = None
    changed: frozenset[str] = frozenset()

    def value(self, key: Key) -> Any:
        """None or False or [] where nothing was given."""
        return getattr(getattr(self, key.bundle), key.field)

    def effective(self, key: Key) -> Any:
        """The same, with the chat's own defaults filled in."""
        own = {"think": self.look.think, "overflow": self.overflow}
        return own.get(key.name, self.value(key))

    def source(self, key: Key) -> str:
        """Who gave the value."""
        if key.name in self.changed:
            return "/set"
        value = self.value(key)
        return "built-in" if value is None or value is False or value == [] else "flag"

    def with_value(self, key: Key, value: object) -> Chosen:
        changed = replace(getattr(self, key.bundle), **{key.field: value})
        return replace(self, **{key.bundle: changed}, changed=self.changed | {key.name})

    def without(self, key: Key) -> Chosen:
        """The key left to its default."""
        bundle = getattr(self, key.bundle)
        default = next(one.default for one in fields(bundle) if one.name == key.field)
        left = replace(bundle, **{key.field: default})
        return replace(self, **{key.bundle: left}, changed=self.changed - {key.name})

    def unread(self) -> list[Key]:
        """The settings given that the strategy, which must be named, does not read."""
        return [setting_keys()[name.replace("_", "-")] for name in unread(self.decoding.flags())]

    @property
    def keeps_cache(self) -> bool:
        return self.loading.kv_cache is not False if self.cached is None else self.cached

    @property
    def overflow(self) -> OverflowChoice:
        return self.chatting.overflow or DEFAULT_OVERFLOW

    @property
    def look(self) -> Look:
        return Look(
            think=self.chatting.think or DEFAULT_THINK,
            markdown=self.chatting.markdown,
            raw_output=self.chatting.raw_output,
        )

    def request(self) -> Request:
        """As one answer would ask for it. Raises UsageError for what can be told wrong at once."""
        if (self.decoding.num_return or 1) > 1:
            raise UsageError(
                f"--num-return is {self.decoding.num_return}; a chat has one reply a turn",
                hint="leave it out, or use `llmcli generate`",
            )
        return Request(
            flags=self.decoding.flags(),
            loading=self.loading,
            prompting=Prompting(template=self.chatting.template),
            context=Context(max_context=self.chatting.max_context),
            ending=self.ending,
            logprobs=None,
            grammar=self.grammar,
        )

    def chat_options(self, *, negative: Prompt | None, draft: Engine | None) -> ChatOptions:
        """As the engine takes them, with what stands for the negative prompt and the draft."""
        from llmcli.engine.chatting import ChatOptions

        generate = replace(generate_options(self.request()), negative=negative, draft=draft)
        if self.cached is not None:
            kind = self.loading.cache or "auto" if self.cached else "none"
            generate = replace(generate, cache=kind)
        return ChatOptions(generate=generate, overflow=self.overflow)
