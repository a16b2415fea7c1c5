"""The one joiner: a folder becomes an Engine, a request becomes a Generation."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cached_property, partial
from pathlib import Path
from typing import Literal

import torch

from llmcli.cache import CacheKind, default_kind
from llmcli.checkpoint.directory import ModelDir
from llmcli.engine.begin import begin
from llmcli.engine.device import check_cache
from llmcli.engine.flags import Flags
from llmcli.engine.generation import Generation
from llmcli.engine.load import Loaded, OnProgress, load_decoder
from llmcli.engine.options import GenerateOptions, LoadOptions
from llmcli.engine.overflow import effective_context
from llmcli.engine.prompt import Prompt, PromptRequest
from llmcli.engine.reader import Reader, check_vocabulary
from llmcli.engine.session import Session
from llmcli.engine.settings import Settings, resolve_settings
from llmcli.engine.token_names import TokenNames
from llmcli.errors import UsageError
from llmcli.text.detokenizer import hidden_ids
from llmcli.text.matcher import Vocabulary, make_vocabulary
from llmcli.text.stop_ids import StopId, collect_stop_ids


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
        check_vocabulary(self.loaded.spec, self.tokenizer)

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
    def vocabulary(self) -> Vocabulary:
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
        check_cache(cache, decoder.device)
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
        return begin(self, prompt, options, session=session, on_prefill=on_prefill)
