"""What a trial is asked to measure, and what of it can be refused without the weights."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch

from llmcli.bench.arms import Arm, make_arms
from llmcli.bench.trial import Case
from llmcli.cache import default_kind
from llmcli.checkpoint.directory import ModelDir
from llmcli.engine.bench_flags import flags_for
from llmcli.engine.device import check_cache
from llmcli.engine.flags import Flags
from llmcli.engine.reader import Reader
from llmcli.engine.settings import Settings, resolve_settings
from llmcli.engine.token_names import TokenNames
from llmcli.errors import GenerationError, UsageError
from llmcli.families import read_spec
from llmcli.generation.reads import StrategyName


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchRequest:
    """What is to be measured. `prompt_ids` takes the place of `prompt_tokens` random ids."""

    model: str
    command: str
    flags: Flags
    strategies: tuple[StrategyName, ...]
    arms: tuple[str, ...]
    prompt_tokens: tuple[int, ...]
    prompt_ids: tuple[int, ...] | None
    new_tokens: int
    rows: tuple[int, ...]
    repeats: int
    warmup: int
    seed: int

    @property
    def cases(self) -> tuple[Case, ...]:
        lengths = self.prompt_tokens if self.prompt_ids is None else (len(self.prompt_ids),)
        return tuple(
            Case(length, self.new_tokens, rows) for rows in self.rows for length in lengths
        )


class SmallFiles:
    """A checkpoint's config, tokenizer, template and defaults; its weights are not looked at."""

    def __init__(self, folder: Path, *, template: Path | None = None) -> None:
        """Raises LlmcliError for what is wrong with one of them."""
        directory = ModelDir.open(folder)
        self.defaults = directory.generation_config()
        self.reader = Reader(directory.path, template=template)
        _, self.spec, _ = read_spec(directory.config)

    @cached_property
    def vocabulary(self) -> TokenNames:
        return TokenNames(self.reader.tokenizer, self.spec.vocab_size)


@dataclass(frozen=True, slots=True)
class Settled:
    """A request that can be measured: its arms, and what each of its strategies uses."""

    request: BenchRequest
    arms: tuple[Arm, ...]
    settings: tuple[Settings, ...]

    @property
    def has_curves(self) -> bool:
        """Whether the cost of a token by its place will come of it."""
        return self.request.new_tokens > 1 and any(map(is_stepwise, self.settings))


def settle(request: BenchRequest, files: SmallFiles, *, device: torch.device) -> Settled:
    """Raises UsageError or GenerationError for what cannot be measured on `device`."""
    arms = make_arms(request.arms, default_kind(files.spec))
    for arm in arms:
        check_cache(arm.kind, device)
    settings = tuple(_settings(request, files, strategy) for strategy in request.strategies)
    for one in settings:
        if not is_stepwise(one) and max(request.rows) > 1:
            raise UsageError(
                f"strategy {one.strategy} is measured with --batch-size 1 only",
                hint="greedy and sample can be measured in batches",
            )
    longest = max(request.cases, key=lambda case: case.planned)
    if longest.planned > files.spec.context:
        prompt = "--prompt-tokens" if request.prompt_ids is None else "prompt"
        raise GenerationError(
            f"{longest.prompt_tokens} prompt tokens and {longest.new_tokens} new ones make "
            f"{longest.planned}; the context holds {files.spec.context}",
            hint=f"ask for a shorter {prompt} or fewer --new-tokens",
        )
    return Settled(request, arms, settings)


def is_stepwise(settings: Settings) -> bool:
    """Whether every new token is one forward of one id."""
    # Guidance feeds a second text in each step, which only the strategy's own loop does.
    unguided = settings.options.get("guidance_scale", 1) == 1
    return settings.strategy in ("greedy", "sample") and unguided


def _settings(request: BenchRequest, files: SmallFiles, strategy: StrategyName) -> Settings:
    return resolve_settings(
        flags_for(request.flags, strategy, request.seed),
        files.defaults,
        fresh_seed=request.seed,
        vocabulary=files.vocabulary,
    )
