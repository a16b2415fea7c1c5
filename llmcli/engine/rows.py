"""Many prompts, or many samples of one: put into batches, run, and handed over as they finish.

Each row is what it would be alone. Must not know files, records or terminals.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from llmcli.cache import LOSSY, CacheKind
from llmcli.engine.engine import Engine
from llmcli.engine.options import GenerateOptions
from llmcli.engine.prompt import Prompt
from llmcli.engine.row import RowRequest, RowResult, RowText
from llmcli.engine.row_plan import plan_batches
from llmcli.engine.settings import Settings
from llmcli.errors import GenerationError, LlmcliError
from llmcli.generation.batch import Batch, BatchRow
from llmcli.generation.options import StrategyOptions
from llmcli.generation.reads import reads
from llmcli.generation.stepper import Stepper
from llmcli.generation.stop import StopRule
from llmcli.generation.strategies.stages import stage_names
from llmcli.text.detokenizer import Detokenizer, hidden_ids
from llmcli.text.stop_strings import StopStrings
from llmcli.text.stream import TextFeed


@dataclass(slots=True)
class Tally:
    """What the rows cost together. `slots` count the padding as well as the prompts' tokens."""

    batches: int = 0
    prompt_tokens: int = 0
    slots: int = 0
    new_tokens: int = 0
    seconds: float = 0.0
    cache_bytes: int = 0


class Rows:
    """A plan of batches over `requests`; `run` carries it out."""

    def __init__(
        self,
        engine: Engine,
        requests: Sequence[RowRequest],
        options: GenerateOptions,
        settings: Settings,
        *,
        batch_size: int,
    ) -> None:
        self.tally = Tally()
        self._engine, self._requests = engine, requests
        self._options, self._settings = options, settings
        self._session = engine.session(options.cache)
        self._ids = [one.prompt.ids if isinstance(one.prompt, Prompt) else () for one in requests]
        self._recurring = Counter(self._ids)
        self._sampled: tuple[tuple[int, ...], int] | None = None
        ending = frozenset(stop.id for stop in engine.stop_ids)
        self._stop_ids = frozenset() if options.ignore_eos else ending
        self._hidden = hidden_ids(engine.tokenizer, ending, show_special=options.show_special)
        self._alone = not _batchable(options, settings)
        self._padded = engine.loaded.spec.can_pad and self._session.kind not in LOSSY
        lengths = {row: self._length(row) for row, ids in enumerate(self._ids) if ids}
        self.batches = (
            [[row] for row in lengths]
            if self._alone
            else plan_batches(lengths, size=batch_size, padded=self._padded)
        )

    @property
    def cache_kind(self) -> CacheKind:
        return self._session.kind

    @property
    def processors(self) -> tuple[str, ...]:
        """The names of the stages that every row's logits go through."""
        told = StrategyOptions(sampling=self._settings.sampling, **self._settings.options)
        settings = self._settings
        return tuple(stage_names(settings.strategy, settings.params, told, stop_ids=self._stop_ids))

    @property
    def apart(self) -> str | None:
        """Why not any rows can share a batch, where that is so."""
        if self._alone:
            return f"strategy {self._settings.strategy}, as asked for, runs row by row"
        if not self._engine.loaded.spec.can_pad:
            return "this model cannot pad, so rows share a batch where they are equally long"
        if not self._padded:
            return (
                f"cache {self._session.kind} packs by place, so rows share a batch where they "
                "are equally long"
            )
        return None

    def run(
        self, *, done: Collection[int] = (), on_step: Callable[[], None] = lambda: None
    ) -> Iterator[RowResult]:
        """Every row that is not `done`: first those without a prompt, then batch by batch.

        Of a batch the shortest answers come first, and equally long ones in order, so that the
        order does not depend on what is done already. `on_step` is called after each step.
        """
        for row, request in enumerate(self._requests):
            if isinstance(request.prompt, LlmcliError) and row not in done:
                yield RowResult(row=row, error=request.prompt)
        for batch in self.batches:
            left = [row for row in batch if row not in done]
            if left:
                self.tally.batches += 1
                yield from (
                    self._single(left[0], on_step) if self._alone else self._batch(left, on_step)
                )

    def _length(self, row: int) -> tuple[int, int]:
        """The prompt's, and the one that the run may reach."""
        return len(self._ids[row]), len(self._ids[row]) + self._stop(row).budget

    def _stop(self, row: int) -> StopRule:
        room = self._engine.loaded.spec.context - len(self._ids[row])
        return StopRule(self._stop_ids, self._requests[row].max_new_tokens, room)

    def _batch(self, rows: list[int], on_step: Callable[[], None]) -> Iterator[RowResult]:
        texts = {row: self._text(row) for row in rows}
        for row in sorted(rows):
            if reason := self._stop(row).exhausted(0):
                yield texts.pop(row).result(row, reason)
        rows = [row for row in rows if row in texts]
        if not rows:
            return
        started = time.perf_counter()
        stepper = self._stepper(rows)
        batch = Batch(
            stepper,
            [
                BatchRow(
                    prompt_ids=self._ids[row],
                    params=replace(self._settings.params, seed=self._requests[row].seed),
                    stop=self._stop(row),
                )
                for row in rows
            ],
            sampling=draws(self._settings),
            line_break_ids=self._engine.line_break_ids,
        )
        self._weigh_prompts(rows)
        while not batch.done:
            finished: list[RowResult] = []
            for at, token in batch.step():
                row, text = rows[at], texts[rows[at]]
                if isinstance(token, GenerationError):
                    finished.append(text.result(row, None, token))
                    continue
                text.add(token)
                if text.feed.stopped:
                    batch.drop(at)
                if token.finish_reason or text.feed.stopped:
                    finished.append(text.result(row, token.finish_reason))
                self.tally.new_tokens += 1
            self._weigh_cache(stepper)
            self.tally.seconds += time.perf_counter() - started
            on_step()
            yield from sorted(finished, key=lambda one: one.row)
            started = time.perf_counter()

    def _single(self, row: int, on_step: Callable[[], None]) -> Iterator[RowResult]:
        request = self._requests[row]
        assert isinstance(request.prompt, Prompt)
        flags = replace(
            self._options.flags, seed=request.seed, max_new_tokens=request.max_new_tokens
        )
        started = time.perf_counter()
        generation = self._engine.generate(
            request.prompt, replace(self._options, flags=flags), session=self._session
        )
        self._weigh_prompts([row])
        error: GenerationError | None = None
        try:
            for _ in generation:
                on_step()
        except GenerationError as problem:
            generation.finish()
            error = problem
        self.tally.seconds += time.perf_counter() - started
        self.tally.new_tokens += len(generation.ids)
        self.tally.cache_bytes = max(self.tally.cache_bytes, generation.stats.cache_bytes)
        yield RowResult(
            row=row,
            ids=tuple(generation.ids),
            text=generation.text,
            finish_reason=None if error else generation.finish_reason,
            stop_string=generation.matched_stop,
            error=error,
        )

    def _stepper(self, rows: list[int]) -> Stepper:
        """For samples of one prompt it begins with the prompt computed before, once for all."""
        ids = max((self._ids[row] for row in rows), key=len)
        planned = max(self._length(row)[1] for row in rows)
        if self._recurring[ids] == 1 or any(self._ids[row] != ids for row in rows):
            return self._engine.session(self._options.cache).stepper(ids, planned=planned)
        if self._sampled != (ids, planned):
            self._session.prefill(ids, planned=planned)
            self._sampled = ids, planned
        return self._session.fork().stepper(ids, planned=planned)

    def _text(self, row: int) -> RowText:
        detokenizer = Detokenizer(self._engine.tokenizer, self._ids[row], hidden=self._hidden)
        return RowText(
            TextFeed(detokenizer, StopStrings(self._options.stop_strings or self._settings.stop))
        )

    def _weigh_prompts(self, rows: list[int]) -> None:
        lengths = [len(self._ids[row]) for row in rows]
        self.tally.prompt_tokens += sum(lengths)
        self.tally.slots += max(lengths) * len(lengths)

    def _weigh_cache(self, stepper: Stepper) -> None:
        if stepper.cache is not None:
            self.tally.cache_bytes = max(self.tally.cache_bytes, stepper.cache.nbytes)


def draws(settings: Settings) -> bool:
    """Whether a seed changes anything."""
    return "seed" in reads(settings.strategy, sampling=settings.sampling)


def _batchable(options: GenerateOptions, settings: Settings) -> bool:
    """Whether the batch loop reads all that was asked for, options yet to come included."""
    known = GenerateOptions(
        flags=options.flags,
        cache=options.cache,
        stop_strings=options.stop_strings,
        ignore_eos=options.ignore_eos,
        show_special=options.show_special,
    )
    plain = StrategyOptions(**settings.options) == StrategyOptions()
    return settings.strategy in ("greedy", "sample") and plain and options == known
