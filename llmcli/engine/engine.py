"""The one joiner: a folder becomes an Engine, a request becomes a Generation."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path

import torch

from llmcli.cache import CacheKind, make_cache
from llmcli.checkpoint.directory import ModelDir
from llmcli.engine.device import DtypeName
from llmcli.engine.generation import Generation
from llmcli.engine.load import Loaded, OnProgress, load_decoder
from llmcli.engine.prompt import Prompt, PromptRequest, build_prompt
from llmcli.engine.settings import Flags, resolve_settings
from llmcli.errors import CheckpointError, GenerationError, UsageError
from llmcli.generation.stepper import Stepper
from llmcli.generation.stop import StopRule
from llmcli.generation.strategies import StrategyOptions, make_strategy
from llmcli.text.chat_template import ChatTemplate, find_template
from llmcli.text.detokenizer import Detokenizer, hidden_ids
from llmcli.text.stop_ids import StopId, collect_stop_ids
from llmcli.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """Where and how the weights are to live; `threads` None leaves torch's own choice."""

    device: str = "auto"
    dtype: DtypeName = "auto"
    threads: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateOptions:
    """How one generation runs, apart from the prompt."""

    flags: Flags = field(default_factory=Flags)
    cache: CacheKind = "growing"
    stop_strings: Sequence[str] = ()
    ignore_eos: bool = False
    show_special: bool = False
    top_logprobs: int = 0


class Engine:
    """One loaded checkpoint: decoder, tokenizer, template, defaults, stop ids."""

    def __init__(self, directory: ModelDir, loaded: Loaded, load_seconds: float) -> None:
        self.directory = directory
        self.loaded = loaded
        self.load_seconds = load_seconds
        self.defaults = directory.generation_config()
        self.tokenizer = Tokenizer.load(directory.path)
        source = find_template(directory.path)
        self.template = ChatTemplate(source) if source else None
        self._check_vocabulary()

    @classmethod
    def load(
        cls, path: Path, options: LoadOptions, *, on_progress: OnProgress | None = None
    ) -> Engine:
        """Raises LlmcliError for anything wrong with the checkpoint or the device."""
        start = time.perf_counter()
        if options.threads is not None:
            if options.threads < 1:
                raise UsageError(f"threads is {options.threads}; it must be at least 1")
            torch.set_num_threads(options.threads)
        directory = ModelDir.open(path)
        loaded = load_decoder(
            directory, device=options.device, dtype=options.dtype, on_progress=on_progress
        )
        return cls(directory, loaded, time.perf_counter() - start)

    @cached_property
    def stop_ids(self) -> tuple[StopId, ...]:
        """Every id that ends a reply, with the sources that name it."""
        return collect_stop_ids(self.defaults, self.directory.config, self.tokenizer, self.template)

    def prompt(self, request: PromptRequest) -> Prompt:
        """The prompt's ids, checked against the context."""
        prompt = build_prompt(request, self.tokenizer, self.template)
        context = self.loaded.spec.max_positions
        if len(prompt.ids) >= context:
            raise GenerationError(
                f"the prompt has {len(prompt.ids)} tokens; the context holds {context}, "
                "and one is needed for the answer",
                hint=f"shorten the prompt by at least {len(prompt.ids) - context + 1} tokens",
            )
        return prompt

    def generate(
        self,
        prompt: Prompt,
        options: GenerateOptions,
        *,
        on_prefill: Callable[[int, int], None] | None = None,
    ) -> Generation:
        """A generation that has not begun; iterating it runs it."""
        settings = resolve_settings(
            options.flags, self.defaults, fresh_seed=secrets.randbelow(2**32)
        )
        spec = self.loaded.spec
        ending = frozenset(stop.id for stop in self.stop_ids)
        return Generation(
            Stepper(self.loaded.decoder, make_cache(options.cache, spec), on_progress=on_prefill),
            make_strategy(
                settings.strategy,
                settings.params,
                StrategyOptions(top_logprobs=options.top_logprobs),
            ),
            StopRule(
                frozenset() if options.ignore_eos else ending,
                settings.max_new_tokens,
                spec.max_positions - len(prompt.ids),
            ),
            prompt=prompt,
            settings=settings,
            make_detokenizer=partial(
                Detokenizer,
                self.tokenizer,
                prompt.ids,
                hidden=hidden_ids(self.tokenizer, ending, show_special=options.show_special),
            ),
            stop_strings=options.stop_strings,
            load_seconds=self.load_seconds,
        )

    def _check_vocabulary(self) -> None:
        rows, highest = self.loaded.spec.vocab_size, self.tokenizer.vocab_size
        if highest > rows:
            raise CheckpointError(
                f"the tokenizer has ids up to {highest - 1}, the embedding only {rows} rows",
                hint="tokenizer and weights are of different models; fetch both again",
            )
