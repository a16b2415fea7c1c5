"""From ids to shown text: the detokenizer, then the stop strings, one plain generator.

Must not know where the ids come from, only that a generator is closed when it is not needed.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator

from llmcli.text.detokenizer import Detokenizer
from llmcli.text.stop_strings import StopStrings


class TextStream:
    """Iterate it once for the pieces of text; afterwards `matched` tells what ended it."""

    def __init__(self, ids: Iterable[int], detokenizer: Detokenizer, stops: StopStrings) -> None:
        self._ids = ids
        self._detokenizer = detokenizer
        self._stops = stops

    @property
    def matched(self) -> str | None:
        """The stop string that ended the text, if one did."""
        return self._stops.matched

    @property
    def stopped(self) -> bool:
        return self._stops.matched is not None

    def __iter__(self) -> Iterator[str]:
        try:
            for token in self._ids:
                text, hit = self._stops.feed(self._detokenizer.feed(token))
                if text:
                    yield text
                if hit:
                    return
            text, hit = self._stops.feed(self._detokenizer.flush())
            rest = text if hit else text + self._stops.flush()
            if rest:
                yield rest
        finally:
            if isinstance(self._ids, Generator):
                self._ids.close()


def stream_text(ids: Iterable[int], detokenizer: Detokenizer, stops: StopStrings) -> TextStream:
    """The text of `ids`, piece by piece; joined it equals the text of all ids cut at a stop."""
    return TextStream(ids, detokenizer, stops)
