"""From a request to a running generation: resolve, load, build the prompt, with progress."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from llmcli.acquire.resolve import Resolved, resolve
from llmcli.cli import interrupts, terminal
from llmcli.cli.options import DtypeChoice
from llmcli.cli.progress import FetchProgress, StepProgress
from llmcli.engine.settings import Flags, check_flags
from llmcli.errors import UsageError

if TYPE_CHECKING:
    from llmcli.engine.engine import Engine
    from llmcli.engine.generation import Generation

# Far above this the process would die without a word when it starts the threads.
_MOST_THREADS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What the command line asks for; None where it says nothing."""

    flags: Flags
    model: str | None
    raw: bool
    system: str | None
    bos: bool | None
    parse_special: bool
    stop: tuple[str, ...]
    ignore_eos: bool
    show_special: bool
    kv_cache: bool | None
    device: str | None
    dtype: DtypeChoice | None
    threads: int | None
    logprobs: int | None

    def __post_init__(self) -> None:
        check_flags(self.flags)
        if any(not stop for stop in self.stop):
            raise UsageError(
                "--stop is empty; it must have at least one character",
                hint="leave it out, or give the text to stop at",
            )
        if self.logprobs is not None and self.logprobs < 0:
            raise UsageError(
                f"--logprobs is {self.logprobs}; it must be at least 0",
                hint="0 reports the chosen token alone",
            )
        if self.threads is not None and not 1 <= self.threads <= _MOST_THREADS:
            raise UsageError(
                f"--threads is {self.threads}; it must lie between 1 and {_MOST_THREADS}",
                hint="leave it out for one thread a physical core",
            )


@dataclass(frozen=True, slots=True)
class Run:
    """A generation that is ready to be iterated, and what it stands on."""

    request: Request
    resolved: Resolved
    engine: Engine
    generation: Generation
    prefill: StepProgress


def find_model(model: str | None) -> Resolved:
    """The checkpoint's folder, fetched with a progress bar where that is needed."""
    with FetchProgress() as progress:
        resolved = resolve(model, progress=progress)
    if resolved.notice:
        terminal.note(resolved.notice)
    return resolved


def start(request: Request, text: str) -> Run:
    """Everything up to the first token. Cheap checks come before the weights are read."""
    resolved = find_model(request.model)
    # torch is imported from here on
    with interrupts.ending_at_once():
        from llmcli.engine.engine import Engine, GenerateOptions, LoadOptions
        from llmcli.engine.prompt import PromptRequest

    loading = StepProgress("loading the weights")
    try:
        engine = Engine.load(
            resolved.path,
            LoadOptions(
                device="auto" if request.device is None else request.device,
                dtype=request.dtype or "auto",
                threads=request.threads,
            ),
            on_progress=loading,
        )
    finally:
        loading.finish()
    for warning in engine.loaded.warnings:
        terminal.note(f"warning: {warning}")
    prompt = engine.prompt(
        PromptRequest(
            text=text,
            system=request.system,
            mode="raw" if request.raw else "auto",
            bos=request.bos,
            parse_special=request.parse_special,
        )
    )
    prefill = StepProgress("reading the prompt")
    generation = engine.generate(
        prompt,
        GenerateOptions(
            flags=request.flags,
            cache="none" if request.kv_cache is False else "auto",
            stop_strings=request.stop,
            ignore_eos=request.ignore_eos,
            show_special=request.show_special,
            top_logprobs=request.logprobs or 0,
        ),
        on_prefill=prefill,
    )
    for warning in generation.settings.warnings:
        terminal.note(f"warning: {warning}")
    return Run(request, resolved, engine, generation, prefill)
