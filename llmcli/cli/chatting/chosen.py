"""Chosen: every setting of a running chat, from the command line and from `/set`.

Must not know conversations or what the values do.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from llmcli.cli.chat_options import DEFAULT_OVERFLOW, DEFAULT_THINK, Chatting, OverflowChoice
from llmcli.cli.chatting.setting_keys import Key, setting_keys
from llmcli.cli.chatting.shown import Look
from llmcli.cli.decoding import Decoding
from llmcli.cli.options import Ending
from llmcli.generation.reads import StrategyName, reads

if TYPE_CHECKING:
    from llmcli.engine.chatting import ChatOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """`kv_cache` None keeps the cache. `changed` are the names of the keys that `/set` set."""

    decoding: Decoding
    ending: Ending
    chatting: Chatting
    kv_cache: bool | None = None
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

    def unread(self, strategy: StrategyName) -> list[Key]:
        """The settings that are given, and that the strategy does not read."""
        known = reads(strategy, sampling=True) | {"strategy", "max_new_tokens"}
        return [
            key
            for key in setting_keys().values()
            if key.bundle == "decoding" and self.value(key) is not None and key.field not in known
        ]

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

    def chat_options(self) -> ChatOptions:
        """As the engine takes them."""
        from llmcli.engine.chatting import ChatOptions
        from llmcli.engine.engine import GenerateOptions

        ending = self.ending
        return ChatOptions(
            generate=GenerateOptions(
                flags=self.decoding.flags(),
                cache="none" if self.kv_cache is False else "auto",
                stop_strings=tuple(ending.stop or ()),
                ignore_eos=ending.ignore_eos,
                show_special=ending.show_special,
            ),
            overflow=self.overflow,
        )
