"""A file of prompts, as text or as JSON lines, checked whole before anything is generated.

Must not know checkpoints.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llmcli.checkpoint.escape import printable
from llmcli.cli.batching import PromptsFormat
from llmcli.cli.prompt_input import read_whole
from llmcli.errors import UsageError

_HUGE = 2**63


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptLine:
    """One prompt; what is None is as the command line has it."""

    text: str
    line: int
    id: str | int | None = None
    system: str | None = None
    seed: int | None = None
    max_new_tokens: int | None = None


def read_prompts(path: Path, format_: PromptsFormat | None) -> list[PromptLine]:
    """Every line's prompt, the empty ones of a text file too. Raises UsageError naming the line."""
    text = read_whole(path, f"--prompts {path}")
    if format_ is None:
        format_ = "jsonl" if path.suffix.lower() in (".jsonl", ".ndjson") else "text"
    # Not splitlines(): a form feed or a line separator is part of a prompt.
    lines = [one.removesuffix("\r") for one in text.removesuffix("\n").split("\n")] if text else []
    if not lines:
        raise UsageError(
            f"--prompts {printable(str(path))} is empty", hint="write one prompt a line"
        )
    if format_ == "text":
        return [PromptLine(text=one, line=at) for at, one in enumerate(lines, start=1)]
    return [_parsed(one, path, at) for at, one in enumerate(lines, start=1)]


def _parsed(text: str, path: Path, line: int) -> PromptLine:
    def bad(what: str) -> UsageError:
        return UsageError(
            f"--prompts {printable(str(path))}, line {line}: {what}",
            hint='a line is an object such as {"prompt": "Hello", "id": 7, "seed": 1}; '
            "--prompts-format text takes lines as they are",
        )

    def without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        for name in names:
            if names.count(name) > 1:
                raise bad(f"{printable(repr(name), 40)} is there twice")
        return dict(pairs)

    try:
        value = json.loads(text, object_pairs_hook=without_repeats)
    except (ValueError, RecursionError) as error:
        raise bad(f"not valid JSON: {printable(str(error))}") from None
    if not isinstance(value, dict):
        raise bad(f"{type(value).__name__}, not an object")
    if "prompt" not in value:
        raise bad("there is no `prompt`")
    for name, found in value.items():
        if name not in _FIELDS:
            raise bad(f"{printable(repr(name), 40)} is not one of {', '.join(_FIELDS)}")
        wanted, fits = _FIELDS[name]
        if not fits(found):
            shown = printable(json.dumps(found), 40)
            raise bad(f"`{name}` is {shown}; it must be {wanted}")
    given = {name: found for name, found in value.items() if name != "prompt"}
    return PromptLine(text=value["prompt"], line=line, **given)


def _is_text(value: object) -> bool:
    """A string of whole characters: JSON can spell halves of surrogate pairs."""
    return isinstance(value, str) and not any("\ud800" <= char <= "\udfff" for char in value)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _HUGE


def _is_id(value: object) -> bool:
    return _is_text(value) or (
        isinstance(value, int) and not isinstance(value, bool) and abs(value) < _HUGE
    )


_FIELDS: Mapping[str, tuple[str, Callable[[object], bool]]] = {
    "prompt": ("text", _is_text),
    "id": ("text or a whole number", lambda value: value is None or _is_id(value)),
    "system": ("text", lambda value: value is None or _is_text(value)),
    "seed": ("a whole number from 0 up", lambda value: value is None or _is_count(value)),
    "max_new_tokens": ("a whole number from 0 up", lambda value: value is None or _is_count(value)),
}
