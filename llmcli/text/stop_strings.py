"""Stop strings over piece borders: what may be shown, what is held, where the text ends.

The match that *begins* first wins, whatever the order of the stops or the borders of the pieces,
so the shown text is always `text[:min(text.find(stop))]`. Must not know ids or tokenizers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from llmcli.errors import UsageError


class StopStrings:
    """Watches one text; a tail that may begin a stop is held back (an Aho-Corasick automaton).

    A stop that begins inside a longer one still open ("bc" in "abcd") waits until the longer one
    is decided. After a hit `matched` names the stop; feeding more gives nothing.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        if isinstance(stops, str):
            raise TypeError("stops must be a list of strings, not one string")
        if any(not stop for stop in stops):
            raise UsageError(
                "a stop string is empty, needed at least one character",
                hint="an empty stop would end every text at once; leave it out",
            )
        self._next: list[dict[str, int]] = [{}]
        self._depth = [0]
        self._found: list[str | None] = [None]
        for stop in stops:
            self._add(stop)
        self._fail = self._failures()
        self.matched: str | None = None
        self._node = 0
        self._held = ""
        self._best: tuple[int, str] | None = None  # where the match starts in _held, and its stop

    def feed(self, piece: str) -> tuple[str, bool]:
        """The text that may be shown now, and whether a stop has ended the text."""
        if self.matched is not None:
            return "", True
        text = self._held + piece
        for at in range(len(self._held), len(text)):
            self._node = self._step(self._node, text[at])
            stop = self._found[self._node]
            if stop is not None:
                start = at + 1 - len(stop)
                if self._best is None or start < self._best[0]:
                    self._best = (start, stop)
            # The deepest node is the earliest stop that is still open
            if self._best is not None and at + 1 - self._depth[self._node] >= self._best[0]:
                return self._end(text), True
        keep = self._depth[self._node]
        if self._best is not None:
            keep = max(keep, len(text) - self._best[0])
        cut = len(text) - keep
        self._held = text[cut:]
        if self._best is not None:
            self._best = (self._best[0] - cut, self._best[1])
        return text[:cut], False

    def flush(self) -> str:
        """The held rest, once the text is over; sets `matched` if a complete stop was in it."""
        if self._best is not None and self.matched is None:
            return self._end(self._held)
        text, self._held = self._held, ""
        return text

    def _end(self, text: str) -> str:
        assert self._best is not None
        start, self.matched = self._best
        self._held = ""
        return text[:start]

    def _add(self, stop: str) -> None:
        node = 0
        for depth, char in enumerate(stop, start=1):
            if char not in self._next[node]:
                self._next[node][char] = len(self._next)
                self._next.append({})
                self._depth.append(depth)
                self._found.append(None)
            node = self._next[node][char]
        self._found[node] = stop

    def _failures(self) -> list[int]:
        fail = [0] * len(self._next)
        queue = deque(self._next[0].values())
        while queue:
            node = queue.popleft()
            for char, child in self._next[node].items():
                queue.append(child)
                back = fail[node]
                while back and char not in self._next[back]:
                    back = fail[back]
                fail[child] = self._next[back].get(char, 0)
                # A node's own stop is longer, so begins earlier, than any it falls back to
                if self._found[child] is None:
                    self._found[child] = self._found[fail[child]]
        return fail

    def _step(self, node: int, char: str) -> int:
        while node and char not in self._next[node]:
            node = self._fail[node]
        return self._next[node].get(char, 0)
