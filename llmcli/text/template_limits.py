"""Bounds on what a chat template may burn: steps, seconds, and the size of any one value.

A template is a stranger's program. jinja's sandbox keeps it from Python's internals and refuses
ranges above 100,000, but nested loops and growing values are left to the checks here.
Must not know jinja's syntax tree, messages or files.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import wraps

from jinja2.exceptions import SecurityError

# A width of six digits or more, or one taken from an argument, in "%" and "{}" formats
PERCENT_BOMB = re.compile(r"%[^a-zA-Z%]*?(\*|\d{6})")
BRACE_BOMB = re.compile(r"[:.][^{}]*(\{|\d{6})")
INT_BITS = 1 << 16
WIDTH_NAMES = frozenset({"center", "ljust", "rjust", "zfill", "expandtabs"})
WIDTH_FILTERS = ("batch", "center", "indent", "slice", "tojson", "truncate", "wordwrap")
TEXT_FILTERS = ("join", "pprint", "string", "tojson", "urlencode", "xmlattr", "list", "sum")


@dataclass(frozen=True, slots=True)
class RenderLimits:
    """`steps` counts loop turns and macro calls; `size` is characters, items or nested values."""

    steps: int = 2_000_000
    seconds: float = 10.0
    size: int = 1 << 24


class Guard:
    """Counts one rendering. Every check raises SecurityError with a one-line reason."""

    def __init__(self, limits: RenderLimits) -> None:
        self._limits = limits
        self._steps = 0
        self._deadline = float("inf")

    def start(self) -> None:
        self._steps = 0
        self._deadline = time.monotonic() + self._limits.seconds

    def tick(self) -> str:
        self._steps += 1
        if self._steps > self._limits.steps:
            raise SecurityError(f"more than {self._limits.steps} loop steps")
        if time.monotonic() > self._deadline:
            raise SecurityError(f"more than {self._limits.seconds:g} seconds")
        return ""

    def size(self, count: int) -> None:
        if count > self._limits.size:
            raise SecurityError(f"a value of {count} characters or items, above the limit")

    def join(self, parts: Iterable[str]) -> str:
        """A bounded `"".join`, through which all output and every captured block goes."""
        kept: list[str] = []
        total = 0
        for part in parts:
            total += len(part)
            self.size(total)
            kept.append(part)
        return "".join(kept)

    def concat(self, *values: object) -> str:
        """The template's `~` operator."""
        return self.join([str(self.measured(value)) for value in values])

    def measured(self, value: object) -> object:
        """`value`, once its text is known to be of bounded size (lists may hold one list twice)."""
        if isinstance(value, (list, tuple, dict, set)):
            left = self._limits.size // 16
            queue: list[object] = [value]
            while queue:
                left -= 1
                item = queue.pop()
                if isinstance(item, str):
                    left -= len(item) // 16
                elif isinstance(item, Mapping):
                    queue += [*item.keys(), *item.values()]
                elif isinstance(item, (list, tuple, set)):
                    queue += item
                if left < 0:
                    raise SecurityError("a nested value whose text is above the size limit")
        return value

    def binop(self, operator: str, left: object, right: object) -> None:
        """Check `+`, `*`, `**` and `%` before they are worked out."""
        if isinstance(left, int) and isinstance(right, int):
            bits = left.bit_length()
            needed = bits * max(right, 0) if operator == "**" else bits + right.bit_length()
            if operator in ("*", "**") and needed > INT_BITS:
                raise SecurityError(f"a number of {needed} bits, above the limit")
        elif operator == "*":
            for text, count in ((left, right), (right, left)):
                if isinstance(text, (str, bytes, list, tuple)) and isinstance(count, int):
                    self.size(len(text) * max(count, 0))
        elif operator == "+":
            if isinstance(left, (str, list, tuple)) and isinstance(right, (str, list, tuple)):
                self.size(len(left) + len(right))
        elif operator == "%" and isinstance(left, str):
            self.percent(left, right)

    def percent(self, text: str, *values: object) -> None:
        if PERCENT_BOMB.search(text):
            raise SecurityError("a format with a huge width")
        self.measured(list(values))

    def braces(self, text: str) -> None:
        if BRACE_BOMB.search(text):
            raise SecurityError("a format with a huge or computed width")

    def method(self, name: str, owner: str, args: tuple[object, ...]) -> None:
        """Check a call of a str method that can make a long text of short ones."""
        if name in WIDTH_NAMES:
            self.widths(args)
            if name == "expandtabs" and args and isinstance(args[0], int):
                self.size(owner.count("\t") * args[0])
        elif name == "replace" and len(args) >= 2:
            self.replacement(owner, args[0], args[1])
        elif name == "join" and args:
            self.joined(args[0], owner)
        elif name == "translate" and args and isinstance(args[0], Mapping):
            longest = max((len(v) for v in args[0].values() if isinstance(v, str)), default=1)
            self.size(len(owner) * longest)

    def widths(self, values: Iterable[object]) -> None:
        for value in values:
            if isinstance(value, int):
                self.size(value)

    def replacement(self, text: object, old: object, new: object) -> None:
        if isinstance(text, str) and isinstance(old, str) and isinstance(new, str):
            found = text.count(old)
            self.size(len(text) + found * max(len(new) - len(old), 0))

    def joined(self, items: object, glue: object) -> None:
        if isinstance(items, (list, tuple)) and isinstance(glue, str):
            self.measured(items)
            self.size(len(glue) * len(items))

    def guard_filters(self, filters: dict[str, Callable[..., object]]) -> None:
        """Wrap, in place, the filters that can make a long value of short ones."""
        for name in WIDTH_FILTERS:
            filters[name] = self._checked(filters[name], self._check_widths)
        for name in TEXT_FILTERS:
            filters[name] = self._checked(filters[name], self._check_texts)
        filters["replace"] = self._checked(filters["replace"], self._check_replace)
        filters["join"] = self._checked(filters["join"], self._check_join)
        filters["format"] = self._checked(filters["format"], self._check_format)

    def _checked(
        self, function: Callable[..., object], check: Callable[[tuple[object, ...]], None]
    ) -> Callable[..., object]:
        # wraps() copies jinja's mark of whether a context comes as the first argument
        @wraps(function)
        def checked(*args: object, **options: object) -> object:
            check((*args, *options.values()))
            return function(*args, **options)

        return checked

    def _check_widths(self, args: tuple[object, ...]) -> None:
        self.widths(arg for arg in args[1:] if arg is not None)

    def _check_texts(self, args: tuple[object, ...]) -> None:
        for arg in args:
            self.measured(arg)

    def _check_replace(self, args: tuple[object, ...]) -> None:
        if len(args) >= 4:
            self.replacement(*(str(arg) for arg in args[1:4]))

    def _check_join(self, args: tuple[object, ...]) -> None:
        if len(args) >= 3:
            self.joined(args[1], args[2])

    def _check_format(self, args: tuple[object, ...]) -> None:
        self.percent(str(args[0]), *args[1:])
