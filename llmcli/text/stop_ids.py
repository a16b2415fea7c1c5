"""Which ids end a reply: the union of every place that names one, with its sources.

A pure function of files already read. Must not know how generation stops.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from llmcli.errors import CheckpointError, LlmcliError
from llmcli.text.chat_template import ChatTemplate
from llmcli.text.tokenizer import Tokenizer

REPLY = "Nothing but this sentence"
# How control tokens look that are not flagged as such.
_CONTROL = re.compile(r"<.+>|\[.+\]|[◁｜].+[▷｜]")


@dataclass(frozen=True, slots=True)
class StopId:
    """One id that ends a reply, its text, and who says so."""

    id: int
    text: str
    sources: tuple[str, ...]


def collect_stop_ids(
    generation_config: Mapping[str, object] | None,
    config: Mapping[str, object] | None,
    tokenizer: Tokenizer,
    template: ChatTemplate | None = None,
) -> tuple[StopId, ...]:
    """The stop ids in the order they are found, each once.

    eos_token_id may be an integer, a list of them or null; anything else is refused by name.
    A negative id, or one above every vocabulary, can never be produced and is left out.
    """
    sources: dict[int, list[str]] = {}
    limit = max(tokenizer.vocab_size, _integer((config or {}).get("vocab_size")))
    named = [("generation_config.json", generation_config), ("config.json", config)]
    for file, values in named:
        for token in _eos_ids(file, (values or {}).get("eos_token_id")):
            if 0 <= token < limit:
                sources.setdefault(token, []).append(file)
    if tokenizer.eos_id is not None:
        sources.setdefault(tokenizer.eos_id, []).append("tokenizer eos_token")
    turn_end = None if template is None else find_turn_end(tokenizer, template)
    if turn_end is not None:
        sources.setdefault(turn_end, []).append("chat template")
    return tuple(
        StopId(token, tokenizer.token_text(token), tuple(dict.fromkeys(names)))
        for token, names in sources.items()
    )


def lost_stop_ids(
    generation_config: Mapping[str, object] | None,
    config: Mapping[str, object] | None,
    tokenizer: Tokenizer,
) -> tuple[tuple[str, int], ...]:
    """Ids that a file names as ends and that no vocabulary holds, each with the file's name."""
    limit = max(tokenizer.vocab_size, _integer((config or {}).get("vocab_size")))
    return tuple(
        (file, token)
        for file, values in (("generation_config.json", generation_config), ("config.json", config))
        for token in _eos_ids(file, (values or {}).get("eos_token_id"))
        if token >= limit
    )


def find_turn_end(tokenizer: Tokenizer, template: ChatTemplate) -> int | None:
    """The control token that the template writes right after an assistant's reply, if any.

    A piece of plain text, such as a line break or `###`, is none, though it may be one token.

    Some templates close a reply only when another turn follows, and some insist on a list of
    tools; so these are tried too. A template that refuses them all names no turn end.
    """
    pair = [_message("user", "Say it."), _message("assistant", REPLY)]
    choices: tuple[list[object] | None, ...] = (None, [])
    for tools in choices:
        for chat in (pair, [*pair, _message("user", "Again.")]):
            try:
                text = template.render(
                    chat,
                    add_generation_prompt=False,
                    tools=tools,
                    tokens=tokenizer.template_tokens,
                )
                found = _token_after_reply(tokenizer, text)
            except LlmcliError:
                continue
            if found is not None:
                return found
    return None


def _token_after_reply(tokenizer: Tokenizer, text: str) -> int | None:
    _, reply, tail = text.rpartition(REPLY)
    for start, _, token in tokenizer.find_added(tail) if reply else []:
        entry = tokenizer.added_tokens[token]
        content = entry.content.strip()
        if not content:
            continue
        control = entry.special or _CONTROL.fullmatch(content)
        return token if control and not tail[:start].strip() else None
    return None


def _message(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def _eos_ids(file: str, value: object) -> list[int]:
    values: list[object] = value if isinstance(value, list) else [value]
    ids: list[int] = []
    for item in [] if value is None else values:
        if isinstance(item, bool) or not isinstance(item, int):
            raise CheckpointError(
                f"{file}: eos_token_id is {value!r}, needed an integer, a list of them or null",
                hint="correct the file",
            )
        ids.append(item)
    return ids


def _integer(value: object) -> int:
    return value if isinstance(value, int) else 0
