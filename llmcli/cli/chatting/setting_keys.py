"""What `/set` can set: every decoding option by its flag's name, and the chat's own switches.

Values are parsed by the options' own parsers, lists of them with a shell's quoting. Must not know
conversations.
"""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from llmcli.checkpoint.escape import printable
from llmcli.cli.chat_options import Chatting
from llmcli.cli.options import Ending, Loading
from llmcli.cli.options.decoding import Decoding
from llmcli.errors import UsageError

# What `/set KEY` takes to leave a setting to the checkpoint or to llmcli again.
UNSET = "default"
# The same for a list.
NOTHING = "none"

Bundle = Literal["decoding", "ending", "chatting"]
_BUNDLES: Mapping[Bundle, Any] = {"decoding": Decoding, "ending": Ending, "chatting": Chatting}
# Of the chat's own options these alone can change while it runs.
_OWN = ("overflow", "think", "markdown")
# What has a command of its own.
_COMMANDS = {
    "system": "/system TEXT sets it",
    "model": "/model NAME goes on with another checkpoint",
    "template": "/model NAME --template FILE goes on with another template",
    "cache": "/cache on or /cache off",
    "kv-cache": "/cache on or /cache off",
    "resume": "/load FILE goes on with another conversation",
}


@dataclass(frozen=True, slots=True)
class Key:
    """One setting: its bundle and field, the values to choose from if they are few, its parser.

    `many` is whether it is a list; `parse` then takes all its values, quoted as in a shell.
    """

    name: str
    bundle: Bundle
    field: str
    choices: tuple[str, ...]
    parse: Callable[[str], object]
    many: bool = False

    def unsets(self, text: str) -> bool:
        """Whether this text leaves the setting to its default."""
        return text == UNSET or (self.many and text == NOTHING)


def setting_keys() -> Mapping[str, Key]:
    """By flag name without its dashes."""
    return _keys()


def find_key(given: str) -> Key:
    """The key of that name, also as `--top-p`, `top_p` or `p` of `-p`; UsageError for another."""
    name = given.lstrip("-").replace("_", "-")
    found = setting_keys().get(_short_names().get(name, name))
    if found is None:
        raise UsageError(f"there is no setting {printable(given, 60)!r}", hint=_instead(name))
    return found


def in_chat(error: UsageError, key: Key) -> UsageError:
    """An error of an option's value in the words of a chat, where it is no flag."""

    def command(match: re.Match[str]) -> str:
        name = match[1]
        if name not in setting_keys():
            return match[0]
        return "/strategy" if name == "strategy" else f"/set {name}"

    leaves = f"/set {key.name} {NOTHING if key.many else UNSET} leaves it to its default"
    hint = error.hint.replace("leave it out for its default", leaves)
    return UsageError(
        re.sub(r"(?<!\S)--(?=[a-z])", "", error.message),
        hint=re.sub(r"(?<!\S)--([a-z-]+)", command, hint) + "; /help set tells more",
    )


def _instead(name: str) -> str:
    """What to do where no setting has that name."""
    if name in _COMMANDS:
        return _COMMANDS[name]
    others = {
        field.name.replace("_", "-") for kind in (Chatting, Loading) for field in fields(kind)
    }
    if name in others:
        return f"it is for the beginning of a chat alone: llmcli chat --{name}"
    close = difflib.get_close_matches(name, setting_keys(), n=1)
    return f"did you mean {close[0]}?" if close else "/set alone lists them all"


@cache
def _keys() -> Mapping[str, Key]:
    found: dict[str, Key] = {}
    for bundle, kind in _BUNDLES.items():
        hints = get_type_hints(kind, include_extras=True)
        for one in fields(kind):
            if bundle == "chatting" and one.name not in _OWN:
                continue
            name = one.name.replace("_", "-")
            found[name] = _key(name, bundle, one.name, hints[one.name])
    return found


@cache
def _short_names() -> Mapping[str, str]:
    found = {}
    for key in _keys().values():
        hint = get_type_hints(_BUNDLES[key.bundle], include_extras=True)[key.field]
        for option in get_args(hint)[1].param_decls or ():
            found[option.lstrip("-")] = key.name
    return found


def _key(name: str, bundle: Bundle, field: str, hint: Any) -> Key:
    assert get_origin(hint) is Annotated
    kind, option = get_args(hint)[:2]
    if _kinds(kind) == (bool,):
        return Key(name, bundle, field, ("on", "off"), _switch(name))
    choices = tuple(
        str(value) for one in _kinds(kind) if get_origin(one) is Literal for value in get_args(one)
    )
    parse = option.parser or str
    if any(get_origin(one) is list for one in _kinds(kind)):
        return Key(name, bundle, field, (), _several(name, parse), many=True)
    return Key(name, bundle, field, choices, parse)


def _kinds(kind: Any) -> tuple[Any, ...]:
    union = get_origin(kind) in (Union, UnionType)
    return tuple(one for one in (get_args(kind) if union else (kind,)) if one is not NoneType)


def _switch(name: str) -> Callable[[str], bool]:
    def parse(text: str) -> bool:
        if text not in ("on", "off"):
            raise UsageError(
                f"{name} is {printable(repr(text), 60)}; it must be on or off",
                hint=f"/set {name} {UNSET} leaves it to its default",
            )
        return text == "on"

    return parse


def _several(name: str, parse: Callable[[str], object]) -> Callable[[str], list[object]]:
    def split(text: str) -> list[object]:
        try:
            words = shlex.split(text)
        except ValueError:
            raise UsageError(
                f"{name} {printable(text, 60)} has a quotation mark or a backslash too few or too "
                "many",
                hint=f"quote as in a shell: /set {name} 'one text' another \"it's\"",
            ) from None
        return [parse(word) for word in words]

    return split
