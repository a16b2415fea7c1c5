"""Marks around the contents of a conversation, to find them again in the rendered text.

Marks are private-use characters that occur nowhere else. Must not know tokens or tokenizers.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

# Short names ("text", "object", "get_weather") that templates compare with, and never marked
NAME = re.compile(r"[A-Za-z0-9_.-]*")
BODY_KEYS = frozenset({"content", "text"})
FIRST_MARK, LAST_MARK = 0xF0000, 0x10FFFD

# string, whether the assistant wrote it, whether it is a message's own text
Change = Callable[[str, bool, bool], str]


@dataclass(frozen=True, slots=True)
class Content:
    """Everything in a chat that its user, or a file, supplies."""

    messages: Sequence[Mapping[str, object]]
    tools: Sequence[object] | None = None
    documents: Sequence[object] | None = None
    extra: Mapping[str, object] | None = None


@dataclass(frozen=True, slots=True)
class Region:
    """Where one content lies in the rendered text."""

    start: int
    end: int
    assistant: bool


@dataclass(frozen=True, slots=True)
class Marks:
    """Unused characters: two that open, two that close, then any number of placeholders."""

    chars: Sequence[str]

    @property
    def deletions(self) -> dict[int, None]:
        return dict.fromkeys(map(ord, self.chars[:4]))

    def opening(self, assistant: bool) -> str:
        return self.chars[int(assistant)]

    def closing(self, assistant: bool) -> str:
        return self.chars[2 + int(assistant)]

    def place(self, index: int) -> str:
        return self.chars[4 + index]


def pick_marks(texts: Iterable[str], *, places: int) -> Marks:
    """Private-use characters that occur in none of the texts, from a place nobody can foresee."""
    used = {char for text in texts for char in text if ord(char) >= FIRST_MARK}
    start = FIRST_MARK + secrets.randbelow(0x8000)
    free = (chr(code) for code in range(start, LAST_MARK) if code & 0xFFFF < 0xFFFE)
    return Marks(list(islice((char for char in free if char not in used), 4 + places)))


def strings_of(content: Content) -> list[str]:
    """Every string in the contents, keys too, but not the messages' roles."""
    found: list[str] = []

    def note(string: str, _assistant: bool, _body: bool) -> str:
        found.append(string)
        return string

    map_content(content, note)
    return found


def map_content(content: Content, change: Change) -> Content:
    """A copy with every string changed; roles are kept, they are the caller's own words."""
    messages: list[Mapping[str, object]] = []
    for message in content.messages:
        assistant = message.get("role") == "assistant"
        messages.append(
            {
                key: value if key == "role" else _map(value, change, assistant, key in BODY_KEYS)
                for key, value in message.items()
            }
        )
    tools, documents = (
        None if items is None else [_map(item, change, False, False) for item in items]
        for items in (content.tools, content.documents)
    )
    extra = content.extra
    if extra is not None:
        extra = {key: _map(value, change, False, False) for key, value in extra.items()}
    return Content(messages, tools, documents, extra)


def brackets(marks: Marks) -> Change:
    """Put marks around a content, inside the spaces at its ends so that trimming still works."""

    def bracket(string: str, assistant: bool, is_body: bool) -> str:
        core = string.strip()
        if not core or (not is_body and NAME.fullmatch(core)):
            return string
        start = string.index(core)
        end = start + len(core)
        opening, closing = marks.opening(assistant), marks.closing(assistant)
        return f"{string[:start]}{opening}{core}{closing}{string[end:]}"

    return bracket


def find_regions(marked: str, marks: Marks) -> list[Region] | None:
    """The contents' places once the marks are taken out; None if an opening or closing is lost."""
    regions: list[Region] = []
    begun: tuple[int, bool] | None = None
    kinds = {marks.opening(who): (True, who) for who in (False, True)}
    kinds |= {marks.closing(who): (False, who) for who in (False, True)}
    pattern = re.compile("[" + "".join(kinds) + "]")
    for seen, match in enumerate(pattern.finditer(marked)):
        opens, who = kinds[match[0]]
        at = match.start() - seen
        if opens:
            if begun is not None:
                return None
            begun = (at, who)
        else:
            if begun is None or begun[1] != who:
                return None
            regions.append(Region(begun[0], at, who))
            begun = None
    return None if begun is not None else regions


def opened_by(before: str, marks: Marks) -> str | None:
    """The opening mark that is not yet closed where the text `before` ends."""
    last = max((before.rfind(char), char) for char in marks.chars[:4])
    return last[1] if last[0] >= 0 and last[1] in marks.chars[:2] else None


def _map(value: object, change: Change, assistant: bool, is_body: bool) -> object:
    match value:
        case str():
            return change(value, assistant, is_body)
        case Mapping():
            return {
                _map_key(key, change, assistant): _map(item, change, assistant, key in BODY_KEYS)
                for key, item in value.items()
            }
        case list() | tuple():
            return [_map(item, change, assistant, is_body) for item in value]
    return value


def _map_key(key: object, change: Change, assistant: bool) -> object:
    if isinstance(key, str) and not NAME.fullmatch(key):
        return change(key, assistant, False)
    return key
