"""Slash commands that change how replies are made: settings, strategy, cache, model."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

from llmcli.cli import terminal
from llmcli.cli.chatting.branching import tell
from llmcli.cli.chatting.opening import find_chat_model
from llmcli.cli.chatting.setting_keys import UNSET, Key, find_key, setting_keys
from llmcli.cli.chatting.talk import Talk
from llmcli.cli.chatting.turns import meter_text
from llmcli.cli.options import StrategyChoice
from llmcli.cli.running import load_found
from llmcli.errors import UsageError


def set_(talk: Talk, argument: str) -> None:
    name, _, value = argument.partition(" ")
    value = value.strip()
    if not name:
        terminal.print_table(("SETTING", "VALUE", "SOURCE"), _rows(talk))
        return
    key = find_key(name)
    if not value:
        terminal.print_line(" ".join((key.name, *_shown(talk, key))))
    elif key.name == "strategy":
        strategy(talk, value)
    elif value == UNSET:
        talk.choose(talk.chosen.without(key))
        tell(talk, f"{key.name} is left to its default")
    else:
        talk.choose(talk.chosen.with_value(key, key.parse(value)))
        tell(talk, f"{key.name} {_text(talk.chosen.value(key))}")


def show(talk: Talk, _: str) -> None:
    chat, engine = talk.chat, talk.chat.engine
    loaded = engine.loaded
    system = chat.conversation.system
    rows = [
        ("model", talk.resolved.name, str(talk.resolved.path)),
        ("device", str(loaded.decoder.device), loaded.device_reason),
        ("dtype", str(loaded.decoder.dtype).removeprefix("torch."), loaded.dtype_reason),
        ("context", meter_text(chat.meter()), _context_source(talk)),
        ("kv-cache", "on" if talk.chosen.keeps_cache else "off", _cache_source(talk)),
        ("system", "none" if system is None else repr(system), "the conversation"),
        ("branch", chat.conversation.branch or "unnamed", "the conversation"),
        ("saved in", str(talk.keeper.path), "autosave"),
    ]
    used = chat.settings().used
    for field, setting in used.items():
        key = setting_keys().get(field.replace("_", "-"))
        value, by = str(setting.value), str(setting.source)
        if field == "seed" and by == "built-in":
            value = "a new one each turn"
        if key is not None and by == "flag":
            by = talk.chosen.source(key)
        rows.append((field.replace("_", "-"), value, by))
    rows += [
        (key.name, *_shown(talk, key))
        for key in setting_keys().values()
        if key.bundle != "decoding"
    ]
    terminal.print_table(("SETTING", "VALUE", "SOURCE"), rows)


def strategy(talk: Talk, name: str) -> None:
    key = setting_keys()["strategy"]
    if not name:
        now = talk.chat.settings().strategy
        terminal.print_line(f"{now} (of {', '.join(get_args(StrategyChoice))})")
        return
    if name == UNSET:
        talk.choose(talk.chosen.without(key))
        tell(talk, f"strategy {talk.chat.settings().strategy}")
        return
    chosen = talk.chosen.with_value(key, key.parse(name))
    given_up = chosen.unread()
    for other in given_up:
        chosen = chosen.without(other)
    talk.choose(chosen)
    unset = f"; it does not read {', '.join(k.name for k in given_up)}, now unset"
    tell(talk, f"strategy {name}" + (unset if given_up else ""))


def cache(talk: Talk, argument: str) -> None:
    if argument in ("on", "off"):
        talk.chat.set_cache(argument == "on")
        talk.chosen = replace(talk.chosen, cached=argument == "on")
        tell(talk, f"KV cache {argument}")
        return
    if argument not in ("", "show"):
        raise UsageError(f"/cache {argument}: it must be on, off or show", hint="/help cache")
    if not talk.chosen.keeps_cache:
        terminal.print_line("KV cache off: each token is computed from all before it")
        return
    held = talk.chat.caches()
    terminal.print_line(f"KV cache on, {len(held)} held")
    for tokens, size in held:
        terminal.print_line(f"  {tokens} tokens, {size / 1e6:.1f} MB")


def model(talk: Talk, name: str) -> None:
    if not name:
        terminal.print_line(f"{talk.resolved.name} from {talk.resolved.path}")
        return
    loading = replace(talk.chosen.loading, model=name)
    # The old one stays until the new one is ready, so that a failure costs nothing.
    again = "leave, and begin with --template FILE.jinja"
    resolved = find_chat_model(name, None, hint=again)
    engine = load_found(resolved, loading)
    talk.switch(engine, resolved, replace(talk.chosen, loading=loading))
    tell(talk, f"model {resolved.name} ({engine.loaded.family}), {meter_text(talk.chat.meter())}")


def _rows(talk: Talk) -> list[tuple[str, str, str]]:
    return [(key.name, *_shown(talk, key)) for key in setting_keys().values()]


def _shown(talk: Talk, key: Key) -> tuple[str, str]:
    """The value in use and its source."""
    used = talk.chat.settings().used.get(key.field)
    if used is not None and used.source != "flag":
        return str(used.value), used.source
    return _text(talk.chosen.effective(key)), talk.chosen.source(key)


def _text(value: object) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "on" if value else "off"
        case list():
            return " ".join(map(repr, value)) or "-"
    return str(value)


def _context_source(talk: Talk) -> str:
    return "the checkpoint" if talk.chosen.chatting.max_context is None else "flag"


def _cache_source(talk: Talk) -> str:
    if talk.chosen.cached is not None:
        return "/cache"
    return "built-in" if talk.chosen.loading.kv_cache is None else "flag"
