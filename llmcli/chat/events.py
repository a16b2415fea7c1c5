"""What can happen to a conversation, as plain data, and as the lines of its file.

Must not know files: a line is a string here.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import Any

from llmcli.chat.turn import ENDINGS, Place, Said

FORMAT = 1
# How the first line of every file begins, and how the others do.
FIRST_WORDS = '{"llmcli_chat":'
LINE_STARTS = ('{"parent":', '{"goto":')


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """How a conversation began. `time` is ISO 8601 with its offset."""

    time: str
    model: str
    system: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Spoken:
    """A turn was added after turn `parent`, and became the tip."""

    parent: int | None
    said: Said


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """The conversation goes on from `place`, in `branch` (None: in none that has a name)."""

    place: Place
    branch: str | None


Event = Spoken | Moved


def line_of(event: Begun | Event) -> str:
    """One line of JSON, without its end."""
    match event:
        case Begun():
            value: dict[str, Any] = {"llmcli_chat": FORMAT, **asdict(event)}
        case Spoken():
            value = {"parent": event.parent, **asdict(event.said)}
        case Moved():
            value = {"goto": event.place.turn, "branch": event.branch, "system": event.place.system}
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def parse_begun(line: str) -> Begun:
    """Raises ValueError saying what is wrong."""
    value = _object(line)
    if "llmcli_chat" not in value:
        raise ValueError("it is not the first line of a conversation")
    version = value.pop("llmcli_chat")
    if version != FORMAT or isinstance(version, bool):
        raise ValueError(f"its format is {version!r}, and this llmcli reads {FORMAT}")
    _keys(value, "time", "model", "system")
    return Begun(
        time=_text(value, "time"),
        model=_text(value, "model"),
        system=_text_or_none(value, "system"),
    )


def parse_event(line: str) -> Event:
    """Raises ValueError saying what is wrong."""
    value = _object(line)
    if "goto" in value:
        _keys(value, "goto", "branch", "system")
        place = Place(turn=_number(value, "goto"), system=_text_or_none(value, "system"))
        branch = _text_or_none(value, "branch")
        if branch is not None and not is_branch_name(branch):
            raise ValueError(f"{branch!r} cannot name a branch")
        return Moved(place=place, branch=branch)
    names = [one.name for one in fields(Said)]
    _keys(value, "parent", *names)
    if value["ended"] not in ENDINGS:
        raise ValueError(f"ended is {value['ended']!r}, not one of {', '.join(ENDINGS)}")
    said = Said(ended=value["ended"], **{n: _text(value, n) for n in names if n != "ended"})
    return Spoken(parent=_number(value, "parent"), said=said)


def is_branch_name(name: str) -> bool:
    """Printable, not all digits (those are turns), and without spaces at its ends."""
    return bool(name) and name.isprintable() and not name.isdecimal() and name == name.strip()


def _object(line: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except RecursionError:
        raise ValueError("it is not JSON that llmcli wrote") from None
    except ValueError as error:
        raise ValueError(f"it is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"it holds a {type(value).__name__}, not an object")
    return value


def _keys(value: dict[str, Any], *needed: str) -> None:
    missing = [name for name in needed if name not in value]
    unknown = [name for name in value if name not in needed]
    if missing:
        raise ValueError(f"it lacks {', '.join(missing)}")
    if unknown:
        raise ValueError(f"it has the unknown key {unknown[0]!r}")


def _text(value: dict[str, Any], name: str) -> str:
    found = value[name]
    if not isinstance(found, str):
        raise ValueError(f"{name} is {found!r}, not a text")
    try:
        found.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError(f"{name} holds half of a surrogate pair") from None
    return found


def _text_or_none(value: dict[str, Any], name: str) -> str | None:
    return None if value[name] is None else _text(value, name)


def _number(value: dict[str, Any], name: str) -> int | None:
    found = value[name]
    if found is not None and (isinstance(found, bool) or not isinstance(found, int)):
        raise ValueError(f"{name} is {found!r}, not a turn's number")
    return found
