"""From ids to shown text: the detokenizer, then the stop strings; pushed, or pulled as a generator.

Must not know where the ids come from, only that a generator is closed when it is not needed.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator

from llmcli.text.detokenizer import Detokenizer
from llmcli.text.stop_strings import StopStrings


class TextFeed:
    """One text that grows by ids; the pieces, joined, are the text of all ids cut at a stop."""

    def __init__(self, detokenizer: Detokenizer, stops: StopStrings) -> None:
        self._detokenizer = detokenizer
        self._stops = stops

    @property
    def matched(self) -> str | None:
        """The stop string that ended the text, if one did."""
        return self._stops.matched

    @property
    def stopped(self) -> bool:
        return self._stops.matched is not None

    def feed(self, token: int) -> str:
        """The text that may be shown now; may be empty, and is for ever once `stopped`."""
        return self._stops.feed(self._detokenizer.feed(token))[0]

    def finish(self) -> str:
        """The rest, once no more ids come. A stop string may end even that."""
        text, hit = self._stops.feed(self._detokenizer.flush())
        return text if hit else text + self._stops.flush()


class TextStream:
    """Iterate it once for the pieces of text; afterwards `matched` tells what ended it."""

    def __init__(self, ids: Iterable[int], detokenizer: Detokenizer, stops: StopStrings) -> None:
        self._ids = ids
        self._feed = TextFeed(detokenizer, stops)

    @property
    def matched(self) -> str | None:
        """The stop string that ended the text, if one did."""
        return self._feed.matched

    @property
    def stopped(self) -> bool:
        return self._feed.stopped

    def __iter__(self) -> Iterator[str]:
        try:
            for token in self._ids:
                if text := self._feed.feed(token):
                    yield text
                if self._feed.stopped:
                    return
            if rest := self._feed.finish():
                yield rest
        finally:
            if isinstance(self._ids, Generator):
                self._ids.close()


def stream_text(ids: Iterable[int], detokenizer: Detokenizer, stops: StopStrings) -> TextStream:
    """The text of `ids`, piece by piece; joined it equals the text of all ids cut at a stop."""
    return TextStream(ids, detokenizer, stops)
