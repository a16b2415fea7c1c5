"""The one joiner: a folder becomes an Engine, a request becomes a Generation."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Literal

import torch

from llmcli.cache import CacheKind, default_kind
from llmcli.checkpoint.directory import ModelDir
from llmcli.engine.accelerate import KernelChoice
from llmcli.engine.constrained import check_grammar
from llmcli.engine.device import DtypeName
from llmcli.engine.draft import check_same_tokenizer
from llmcli.engine.generation import Generation
from llmcli.engine.load import Loaded, OnProgress, load_decoder
from llmcli.engine.overflow import Overflow, check_limits, check_shift, effective_context
from llmcli.engine.prompt import Prompt, PromptRequest
from llmcli.engine.reader import Reader
from llmcli.engine.session import Session
from llmcli.engine.settings import Flags, Settings, resolve_settings
from llmcli.engine.token_names import TokenNames
from llmcli.errors import CheckpointError, UsageError
from llmcli.generation.explain import Recorder
from llmcli.generation.limit import Limit
from llmcli.generation.stop import StopRule
from llmcli.generation.strategies import StrategyOptions, make_strategy, reads
from llmcli.generation.strategies.stages import stage_names
from llmcli.spec import PackingKind
from llmcli.text.detokenizer import Detokenizer, hidden_ids
from llmcli.text.grammar import Grammar
from llmcli.text.matcher import Matcher, Vocabulary, make_vocabulary
from llmcli.text.stop_ids import StopId, collect_stop_ids


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """Where and how the weights are to live; `threads` None leaves torch's own choice.

    `template` is a chat template's file to use in place of the checkpoint's own.
    """

    device: str = "auto"
    dtype: DtypeName = "auto"
    threads: int | None = None
    template: Path | None = None
    kernels: KernelChoice = "auto"
    quantize: PackingKind | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateOptions:
    """How one generation runs, apart from the prompt.

    `max_context` caps the context below the model's own. At its end, `overflow` stop ends the
    run; shift drops tokens and goes on: those that `limit` says, or a quarter of them, the first
    few aside. `explain` is how many candidates are kept of every stage of every choice; 0 keeps
    nothing.
    `negative` is the negative prompt, and `draft` the draft model, that flags ask for.
    `on_step(done, budget)` is called after each step of a strategy whose text comes at the end.
    `stop_ids` None are the checkpoint's own. `show_special` shows special tokens in the text, and
    `show_thought_marks` those alone that stand around reasoning.
    """

    flags: Flags = field(default_factory=Flags)
    cache: CacheKind | Literal["auto"] = "auto"
    stop_strings: Sequence[str] = ()
    stop_ids: Sequence[int] | None = None
    ignore_eos: bool = False
    show_special: bool = False
    show_thought_marks: bool = False
    top_logprobs: int = 0
    explain: int = 0
    grammar: Grammar | None = None
    negative: Prompt | None = None
    draft: Engine | None = None
    on_step: Callable[[int, int], None] | None = None
    max_context: int | None = None
    overflow: Overflow = "stop"
    limit: Limit | None = None


class Engine:
    """One loaded checkpoint: decoder, tokenizer, template, defaults, stop ids."""

    def __init__(
        self, directory: ModelDir, load: Callable[[], Loaded], *, template: Path | None = None
    ) -> None:
        """Reads the small files first, so that a fault in one of them does not cost a load."""
        self.directory = directory
        self.defaults = directory.generation_config()
        self.reader = Reader(directory.path, template=template)
        self.tokenizer, self.template = self.reader.tokenizer, self.reader.template
        start = time.perf_counter()
        self.loaded = load()
        self.load_seconds = time.perf_counter() - start
        self._check_vocabulary()

    @classmethod
    def load(
        cls,
        path: Path,
        options: LoadOptions,
        *,
        on_progress: OnProgress | None = None,
        on_compile: Callable[[], None] | None = None,
    ) -> Engine:
        """Raises LlmcliError for anything wrong with the checkpoint or the device."""
        if options.threads is not None:
            if options.threads < 1:
                raise UsageError(f"threads is {options.threads}; it must be at least 1")
            torch.set_num_threads(options.threads)
        directory = ModelDir.open(path)
        load = partial(
            load_decoder,
            directory,
            device=options.device,
            dtype=options.dtype,
            kernels=options.kernels,
            quantize=options.quantize,
            on_progress=on_progress,
            on_compile=on_compile,
        )
        return cls(directory, load, template=options.template)

    @cached_property
    def stop_ids(self) -> tuple[StopId, ...]:
        """Every id that ends a reply, with the sources that name it."""
        return collect_stop_ids(self.defaults, self.directory.config, self.tokenizer, self.template)

    @cached_property
    def line_break_ids(self) -> frozenset[int]:
        """The id of a bare line break, where the tokenizer has one."""
        ids = self.tokenizer.encode_raw("a\n", bos=False)
        return frozenset(ids[-1:]) if len(ids) == 2 else frozenset()

    @cached_property
    def _vocabulary(self) -> Vocabulary:
        """The tokenizer as constraints need it."""
        ending = (stop.id for stop in self.stop_ids)
        return make_vocabulary(
            self.tokenizer, hidden_ids(self.tokenizer, ending, show_special=False)
        )

    def settings(self, flags: Flags, *, fresh_seed: int = 0) -> Settings:
        """What a run with these flags uses. Raises as `resolve_settings` does."""
        vocabulary = TokenNames(self.tokenizer, self.loaded.spec.vocab_size)
        return resolve_settings(flags, self.defaults, fresh_seed=fresh_seed, vocabulary=vocabulary)

    def prompt(
        self,
        request: PromptRequest,
        *,
        what: str = "the prompt",
        max_context: int | None = None,
    ) -> Prompt:
        """The prompt's ids, checked against the context or the part of it that is to be used.

        `what` is what errors call it.
        """
        context = effective_context(self.loaded.spec, max_context)
        return self.reader.prompt(request, context=context, what=what)

    def session(self, cache: CacheKind | Literal["auto"] = "auto") -> Session:
        """A cache to begin generations from, each reusing what it shares with the last.

        Raises UsageError for a kind that has no sense on this device.
        """
        decoder = self.loaded.decoder
        if cache == "offloaded" and decoder.device.type == "cpu":
            raise UsageError(
                "cache offloaded moves keys and values to host memory, but the device is cpu",
                hint="use another kind, or the usual one: they are in host memory already",
            )
        return Session(decoder, default_kind(decoder.spec) if cache == "auto" else cache)

    def generate(
        self,
        prompt: Prompt,
        options: GenerateOptions,
        *,
        session: Session | None = None,
        on_prefill: Callable[[int, int], None] | None = None,
    ) -> Generation:
        """A generation that has not begun; iterating it runs it.

        With a session its cache is used and `options.cache` is not read.
        """
        settings = self.settings(options.flags, fresh_seed=secrets.randbelow(2**32))
        if options.top_logprobs and "top_logprobs" not in reads(settings.strategy):
            raise UsageError(
                f"strategy {settings.strategy} does not report --logprobs above 0",
                hint="use --logprobs 0, or another --strategy",
            )
        recorder = Recorder(options.explain) if options.explain else None
        session = session or self.session(options.cache)
        context = effective_context(self.loaded.spec, options.max_context)
        shift = options.overflow == "shift"
        limit = options.limit or Limit(context)
        check_limits(
            options.max_context,
            options.overflow,
            settings.strategy,
            cached=session.kind != "none",
        )
        if shift:
            check_shift(self.loaded.spec, limit, session.kind)
        own = options.stop_ids is None
        ending = frozenset((stop.id for stop in self.stop_ids) if own else options.stop_ids or ())
        # The negative prompt is continued with the same ids, and needs as much room.
        negative = options.negative if options.flags.negative_prompt is not None else None
        longest = max(len(prompt.ids), len(negative.ids) if negative else 0)
        stop = StopRule(
            frozenset() if options.ignore_eos else ending,
            settings.max_new_tokens,
            settings.max_new_tokens if shift else max(0, context - longest),
        )
        # A grammar says itself where the text ends; the checkpoint's stops would cut it.
        stop_strings = options.stop_strings or (() if options.grammar else settings.stop)
        check_grammar(
            options.grammar,
            settings.strategy,
            stop_strings=stop_strings,
            stop_ids=stop.stop_ids,
        )
        make_detokenizer = partial(
            Detokenizer,
            self.tokenizer,
            prompt.ids,
            hidden=hidden_ids(
                self.tokenizer,
                ending,
                show_special=options.show_special,
                show_thought_marks=options.show_thought_marks,
            ),
        )
        constraint = (
            Matcher.start(options.grammar, self._vocabulary, make_detokenizer())
            if options.grammar
            else None
        )
        planned = min(longest + stop.budget, context)
        told = replace(
            self._strategy_options(settings, options, session.kind, planned),
            explain=recorder,
            constraint=constraint,
        )
        return Generation(
            session.stepper(
                prompt.ids,
                planned=planned,
                on_progress=on_prefill,
                limit=limit if shift else None,
            ),
            make_strategy(settings.strategy, settings.params, told),
            stop,
            prompt=prompt,
            cache_kind=session.kind,
            settings=settings,
            processors=stage_names(
                settings.strategy, settings.params, told, stop_ids=stop.stop_ids
            ),
            make_detokenizer=make_detokenizer,
            constraint=constraint,
            stop_strings=stop_strings,
            ending_ids=tuple(sorted(ending)),
            recorder=recorder,
            load_seconds=self.load_seconds,
        )

    def _strategy_options(
        self, settings: Settings, options: GenerateOptions, kind: CacheKind, planned: int
    ) -> StrategyOptions:
        read, flags = reads(settings.strategy), options.flags
        for key, given in (("negative_prompt", options.negative), ("draft_model", options.draft)):
            if getattr(flags, key) is not None and given is None:
                raise UsageError(
                    f"--{key.replace('_', '-')} has no meaning here", hint="leave it out"
                )
        negative = options.negative if flags.negative_prompt is not None else None
        draft = None
        if options.draft is not None and flags.draft_model is not None:
            check_same_tokenizer(self.tokenizer, options.draft.tokenizer)
            own = options.draft.session("none" if kind == "none" else "auto")
            draft = own.stepper((), planned=planned)
        return StrategyOptions(
            top_logprobs=options.top_logprobs,
            line_break_ids=self.line_break_ids,
            sampling=settings.sampling,
            negative_ids=negative.ids if negative else (),
            draft=draft,
            on_step=options.on_step if "on_step" in read else None,
            **settings.options,
        )

    def _check_vocabulary(self) -> None:
        rows, highest = self.loaded.spec.vocab_size, self.tokenizer.vocab_size
        if highest > rows:
            raise CheckpointError(
                f"the tokenizer has ids up to {highest - 1}, the embedding only {rows} rows",
                hint="tokenizer and weights are of different models; fetch both again",
            )
