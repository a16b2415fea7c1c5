"""One running generation: iterate it for text; it keeps ids, logprobs and statistics.

Plain generators, no threads. Whatever stops it, what was generated stays.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from llmcli.cache import CacheKind
from llmcli.engine.prompt import Prompt
from llmcli.engine.settings import Settings
from llmcli.engine.stats import Stats, peak_memory
from llmcli.generation.constraint import Constraint
from llmcli.generation.explain import Recorder, Step
from llmcli.generation.outcome import Acceptance, Hypothesis
from llmcli.generation.stepper import Stepper
from llmcli.generation.stop import StopRule
from llmcli.generation.strategies import Strategy
from llmcli.generation.token import Token
from llmcli.text.detokenizer import Detokenizer
from llmcli.text.stop_strings import StopStrings
from llmcli.text.stream import stream_text

EndReason = Literal["stop", "length", "context", "interrupted"]


@dataclass(frozen=True, slots=True)
class Found:
    """One of several texts, with the score that it is ranked by."""

    text: str
    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    score: float
    finish_reason: EndReason


class Generation:
    """Iterate once for the pieces of text; `tokens`, `stats`, `finish_reason` fill up meanwhile.

    The last token may be a stop id: it is in `ids`, and never in the text. `ending_ids` are all
    that are such ids, also where they are ignored.
    """

    def __init__(
        self,
        stepper: Stepper,
        strategy: Strategy,
        stop: StopRule,
        *,
        prompt: Prompt,
        settings: Settings,
        cache_kind: CacheKind,
        processors: Sequence[str],
        make_detokenizer: Callable[[], Detokenizer],
        stop_strings: Sequence[str],
        load_seconds: float,
        ending_ids: tuple[int, ...] = (),
        recorder: Recorder | None = None,
        constraint: Constraint | None = None,
    ) -> None:
        self.prompt = prompt
        self.settings = settings
        self.cache_kind = cache_kind
        self.processors = tuple(processors)
        self.tokens: list[Token] = []
        self.pieces: list[str] = []
        self.finish_reason: EndReason = "interrupted"
        self.stats = Stats(prompt_tokens=len(prompt.ids), load_seconds=load_seconds)
        self._recorder = recorder
        self._stepper, self._strategy, self._stop = stepper, strategy, stop
        self._make_detokenizer = make_detokenizer
        self._detokenizer = make_detokenizer()
        self.stop_strings = tuple(stop_strings)
        self.ending_ids = ending_ids
        self._stops = StopStrings(stop_strings)
        self._constraint = constraint

    @property
    def ids(self) -> list[int]:
        return [token.id for token in self.tokens]

    @property
    def explanation(self) -> list[Step] | None:
        """How each token was chosen; None where that was not asked for."""
        return None if self._recorder is None else self._recorder.steps[: len(self.tokens)]

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    @property
    def prompt_text(self) -> str:
        """The text of the prompt that the answer continues exactly."""
        return self._detokenizer.prompt_text

    @property
    def matched_stop(self) -> str | None:
        """The stop string that ended the text, if one did."""
        return self._stops.matched

    @property
    def satisfied(self) -> bool | None:
        """Whether the text as it stands keeps to the constraint; None where there is none."""
        if self._constraint is None:
            return None
        ids = self.ids
        ended = bool(ids) and ids[-1] in self._stop.stop_ids
        return self._constraint.may_end(ids[:-1] if ended else ids)

    def __iter__(self) -> Iterator[str]:
        stream = stream_text(self._ids(), self._detokenizer, self._stops)
        for piece in stream:
            self.pieces.append(piece)
            yield piece
        if stream.stopped:
            self.finish_reason = "stop"

    @property
    def acceptance(self) -> Acceptance | None:
        """How the guessing of speculative decoding went; None where nothing guessed."""
        return self._strategy.outcome.acceptance

    @property
    def sequences(self) -> tuple[Found, ...]:
        """The best texts of a beam search, best first, each cut at its first stop string."""
        return tuple(self._found(one) for one in self._strategy.outcome.hypotheses)

    def _found(self, hypothesis: Hypothesis) -> Found:
        beam, stops, read = hypothesis.beam, StopStrings(self.stop_strings), 0

        def ids() -> Iterator[int]:
            nonlocal read
            for id_ in beam.ids:
                read += 1
                yield id_

        text = "".join(stream_text(ids(), self._make_detokenizer(), stops))
        reason = "stop" if stops.matched is not None else hypothesis.finish_reason
        return Found(text, beam.ids[:read], beam.logprobs[:read], hypothesis.score, reason)

    def finish(self) -> None:
        """After an interruption: bring `text` up to the ids, with all that was held back.

        An interrupt may have struck between two states of the stream, so the ids are read anew.
        """
        self._stops = StopStrings(self.stop_strings)
        whole = "".join(stream_text(self.ids, self._make_detokenizer(), self._stops))
        self.pieces.append(whole[len(self.text) :])
        self._weigh()

    def _ids(self) -> Iterator[int]:
        self.finish_reason = self._stop.exhausted(0) or self.finish_reason
        if self._complete():
            return
        tokens = self._strategy.run(self._stepper, self.prompt.ids, self._stop)
        try:
            while True:
                start = time.perf_counter()
                token = next(tokens, None)
                if token is None:
                    return
                self._count(token, time.perf_counter() - start)
                yield token.id
                if token.finish_reason:
                    self.finish_reason = token.finish_reason
                if self._complete():
                    return
        finally:
            self._weigh()

    def _complete(self) -> bool:
        """Whether the constraint allows nothing more: the text has then come to its end."""
        if self._constraint is None or self.finish_reason == "stop":
            return False
        if self._constraint.ended(self.ids):
            self.finish_reason = "stop"
            return True
        return False

    def _count(self, token: Token, seconds: float) -> None:
        stats = self.stats
        self.tokens.append(token)
        stats.new_tokens += 1
        if stats.first_token_seconds is None:
            stats.first_token_seconds = seconds
            stats.prefilled_tokens = self._stepper.prefilled or 0
        else:
            stats.decode_seconds += seconds

    def _weigh(self) -> None:
        cache = self._stepper.cache
        self.stats.cache_bytes = cache.nbytes if cache is not None else 0
        self.stats.dropped_tokens = cache.dropped if cache is not None else 0
        self.stats.at_once = bool(self._strategy.outcome.hypotheses)
        self.stats.peak_memory_bytes = peak_memory(self._stepper.decoder.device)
