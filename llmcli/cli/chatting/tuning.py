"""Slash commands that change how replies are made: settings, strategy, cache, model."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import TYPE_CHECKING, get_args

from llmcli.cli import terminal
from llmcli.cli.chatting.branching import tell
from llmcli.cli.chatting.files import user_path
from llmcli.cli.chatting.opening import find_chat_model
from llmcli.cli.chatting.setting_keys import UNSET, Key, find_key, in_chat, setting_keys
from llmcli.cli.chatting.talk import Talk
from llmcli.cli.chatting.turns import meter_text
from llmcli.cli.options import Prompting, StrategyChoice
from llmcli.cli.running import check_prompting, load_found
from llmcli.errors import UsageError
from llmcli.plurals import counted

if TYPE_CHECKING:
    from llmcli.engine.load import Loaded


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
    else:
        try:
            _set(talk, key, value)
        except UsageError as error:
            raise in_chat(error, key) from error


def _set(talk: Talk, key: Key, value: str) -> None:
    if key.unsets(value):
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
        ("quantize", *_quantized(loaded)),
        ("context", meter_text(chat.meter()), _context_source(talk)),
        ("kv-cache", "on" if talk.chosen.keeps_cache else "off", _cache_source(talk)),
        ("template", *_template(talk)),
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
            value = _text(talk.chosen.value(key)) if key.many else value
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
    try:
        chosen = talk.chosen.with_value(key, key.parse(name))
        given_up = chosen.unread()
        for other in given_up:
            chosen = chosen.without(other)
        talk.choose(chosen)
    except UsageError as error:
        raise in_chat(error, key) from error
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
        terminal.print_line(f"  {counted(tokens, 'token')}, {size / 1e6:.1f} MB")


def model(talk: Talk, argument: str) -> None:
    if not argument:
        terminal.print_line(f"{talk.resolved.name} from {talk.resolved.path}")
        return
    name, flag, file = (part.strip() for part in f" {argument} ".partition(" --template "))
    if flag and not file:
        raise UsageError("--template needs FILE", hint="/model [NAME] --template FILE.jinja")
    template = user_path(file) if file else None
    check_prompting(Prompting(template=template))
    loading = replace(talk.chosen.loading, model=name or talk.chosen.loading.model)
    chatting = replace(talk.chosen.chatting, template=template)
    # The old one stays until the new one is ready, so that a failure costs nothing.
    again = f"/model {name} --template FILE.jinja gives it one"
    resolved = find_chat_model(loading.model, template, hint=again)
    engine = load_found(resolved, loading, template=template)
    talk.switch(engine, resolved, replace(talk.chosen, loading=loading, chatting=chatting))
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
            return shlex.join(map(str, value)) or "-"
    return str(value)


def _quantized(loaded: Loaded) -> tuple[str, str]:
    if loaded.form is not None:
        return f"mostly to {loaded.form.bits} bits", "the file"
    return loaded.quantized or "no", "as it was loaded"


def _template(talk: Talk) -> tuple[str, str]:
    template = talk.chat.engine.reader.chat_template()
    own = talk.chosen.chatting.template is None
    return template.source.origin, "the checkpoint" if own else "--template"


def _context_source(talk: Talk) -> str:
    return "the checkpoint" if talk.chosen.chatting.max_context is None else "flag"


def _cache_source(talk: Talk) -> str:
    if talk.chosen.cached is not None:
        return "/cache"
    return "built-in" if talk.chosen.loading.kv_cache is None else "flag"
