"""From a request to a running generation: resolve, load, build the prompt, with progress."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from llmcli.acquire.resolve import Resolved, resolve
from llmcli.checkpoint.directory import ModelDir
from llmcli.checkpoint.escape import printable
from llmcli.checkpoint.packed_form import refuse_quantizing
from llmcli.cli import interrupts, terminal
from llmcli.cli.keeping import Keeping, Kept, open_kept
from llmcli.cli.options import Context, Ending, Loading, Prompting
from llmcli.cli.progress import FetchProgress, StepProgress
from llmcli.engine.constrained import check_grammar
from llmcli.engine.flags import Flags, check_flags
from llmcli.engine.overflow import check_limits
from llmcli.errors import UsageError
from llmcli.plurals import counted
from llmcli.text.grammar import Grammar

if TYPE_CHECKING:
    from llmcli.engine.engine import Engine
    from llmcli.engine.generation import Generation
    from llmcli.engine.options import GenerateOptions
    from llmcli.engine.prompt import Prompt, PromptRequest

# Far above this the process would die without a word when it starts the threads.
_MOST_THREADS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What the command line asks for; None where it says nothing."""

    flags: Flags
    loading: Loading
    prompting: Prompting
    ending: Ending
    logprobs: int | None
    explain: int = 0
    receipt: Path | None = None
    grammar: Grammar | None = None
    context: Context = field(default_factory=Context)
    keeping: Keeping = field(default_factory=Keeping)

    def __post_init__(self) -> None:
        check_flags(self.flags)
        check_loading(self.loading)
        check_prompting(self.prompting)
        self.keeping.check(self.loading)
        check_limits(
            self.context.max_context,
            self.context.overflow or "stop",
            self.flags.strategy,
            cached=self.loading.cache_kind != "none",
        )
        check_grammar(self.grammar, self.flags.strategy, stop_strings=self.ending.stop or ())
        if any(not stop for stop in self.ending.stop or ()):
            raise UsageError(
                "--stop is empty; it must have at least one character",
                hint="leave it out, or give the text to stop at",
            )
        if self.logprobs is not None and self.logprobs < 0:
            raise UsageError(
                f"--logprobs is {self.logprobs}; it must be at least 0",
                hint="0 reports the chosen token alone",
            )


def check_loading(loading: Loading) -> None:
    """Raise UsageError for what can be told wrong before anything is looked for."""
    if loading.threads is not None and not 1 <= loading.threads <= _MOST_THREADS:
        raise UsageError(
            f"--threads is {loading.threads}; it must lie between 1 and {_MOST_THREADS}",
            hint="leave it out for one thread a physical core",
        )
    if loading.kv_cache is False and loading.cache is not None:
        raise UsageError(
            f"--no-kv-cache contradicts --cache {loading.cache}", hint="leave one of them out"
        )


def check_prompting(prompting: Prompting) -> None:
    """Raise UsageError for what contradicts itself, or names no file."""
    if prompting.template is None:
        return
    if prompting.raw:
        raise UsageError("--raw does not read --template", hint="leave one of them out")
    if not prompting.template.is_file():
        raise UsageError(
            f"--template {printable(str(prompting.template))} is not a file",
            hint="give a jinja file that holds a chat template",
        )


@dataclass(frozen=True, slots=True)
class Run:
    """A generation that is ready to be iterated, and what it stands on."""

    request: Request
    resolved: Resolved
    engine: Engine
    generation: Generation
    options: GenerateOptions
    draft: Resolved | None
    bars: tuple[StepProgress, ...]
    kept: Kept | None = None


def find_model(model: str | None) -> Resolved:
    """The checkpoint's folder, fetched with a progress bar where that is needed."""
    with FetchProgress() as progress:
        resolved = resolve(model, progress=progress)
    if resolved.notice:
        terminal.note(resolved.notice)
    return resolved


def find_draft(draft: str | None, target: Resolved, loading: Loading) -> Resolved | None:
    """The draft model's folder.

    Raises UsageError where its tokenizer is not the target's, or where either is quantised
    already and is to be quantised, so that neither is loaded for nothing.
    """
    if draft is None:
        return None
    from llmcli.engine.draft import check_draft

    found = find_model(draft)
    check_draft(target.path, found.path)
    for one in (target, found):
        refuse_quantizing(ModelDir.open(one.path).config, loading.quantize, one.name)
    return found


def load_engine(loading: Loading, *, template: Path | None = None) -> tuple[Resolved, Engine]:
    """The checkpoint found, fetched where needed, and loaded, with progress and its warnings.

    `template` is a chat template's file in place of its own.
    """
    resolved = find_model(loading.model)
    return resolved, load_found(resolved, loading, template=template)


def load_found(resolved: Resolved, loading: Loading, *, template: Path | None = None) -> Engine:
    """A checkpoint that was found before, loaded with progress and its warnings."""
    # torch is imported from here on
    with interrupts.ending_at_once():
        from llmcli.engine.device import check_cache, choose_device
        from llmcli.engine.engine import Engine
        from llmcli.engine.machine import usable_cpus
        from llmcli.engine.options import LoadOptions

    if loading.cache_kind == "offloaded":
        check_cache("offloaded", choose_device(loading.device or "auto")[0])
    if (loading.threads or 1) > (cpus := len(usable_cpus())):
        terminal.note(
            f"warning: {loading.threads} threads share {counted(cpus, 'CPU')}, and wait for one "
            "another; --threads sets how many there are"
        )
    bar = StepProgress("loading the weights")
    try:
        engine = Engine.load(
            resolved.path,
            LoadOptions(
                device="auto" if loading.device is None else loading.device,
                dtype=loading.dtype or "auto",
                threads=loading.threads,
                kernels=loading.kernels or "auto",
                quantize=loading.quantize,
                template=template,
            ),
            on_progress=bar,
            on_compile=_announce_compiling,
        )
    finally:
        bar.finish()
    for warning in engine.loaded.warnings:
        terminal.note(f"warning: {warning}")
    return engine


def _announce_compiling() -> None:
    terminal.note("compiling kernels for this machine, once; it takes a few seconds")


def make_prompt(
    engine: Engine,
    prompting: Prompting,
    text: str,
    *,
    what: str = "the prompt",
    max_context: int | None = None,
) -> Prompt:
    """The prompt's ids, in the chat template where that applies."""
    return engine.prompt(prompt_request(prompting, text), what=what, max_context=max_context)


def prompt_request(prompting: Prompting, text: str) -> PromptRequest:
    """A prompt's text with what the command line says of how it becomes ids."""
    from llmcli.engine.prompt import PromptRequest

    return PromptRequest(
        text=text,
        system=prompting.system,
        mode="raw" if prompting.raw else "auto",
        bos=prompting.bos,
        parse_special=prompting.parse_special,
    )


def negative_prompt(engine: Engine, request: Request) -> Prompt | None:
    """What guidance leads away from, made as the prompt is."""
    text = request.flags.negative_prompt
    if text is None:
        return None
    return make_prompt(
        engine,
        request.prompting,
        text,
        what="the negative prompt",
        max_context=request.context.max_context,
    )


def generate_options(request: Request) -> GenerateOptions:
    """As the engine takes them."""
    from llmcli.engine.options import GenerateOptions

    ending = request.ending
    return GenerateOptions(
        flags=request.flags,
        cache=request.loading.cache_kind,
        stop_strings=tuple(ending.stop or ()),
        ignore_eos=ending.ignore_eos,
        show_special=ending.show_special,
        top_logprobs=request.logprobs or 0,
        explain=request.explain,
        grammar=request.grammar,
        max_context=request.context.max_context,
        overflow=request.context.overflow or "stop",
    )


def load_all(request: Request) -> tuple[Resolved, Engine, GenerateOptions]:
    """The checkpoint loaded, and how its generations run: with what other models they need."""
    resolved = find_model(request.loading.model)
    found_draft = find_draft(request.flags.draft_model, resolved, request.loading)
    engine = load_found(resolved, request.loading, template=request.prompting.template)
    options = replace(
        generate_options(request),
        negative=negative_prompt(engine, request),
        draft=None if found_draft is None else load_found(found_draft, request.loading),
    )
    return resolved, engine, options


def start(request: Request, text: str) -> Run:
    """Everything up to the first token. Cheap checks come before the weights are read."""
    resolved = find_model(request.loading.model)
    found_draft = find_draft(request.flags.draft_model, resolved, request.loading)
    engine = load_found(resolved, request.loading, template=request.prompting.template)
    prompt = make_prompt(engine, request.prompting, text, max_context=request.context.max_context)
    prefill, search = StepProgress("reading the prompt"), StepProgress("searching")
    options = replace(
        generate_options(request),
        negative=negative_prompt(engine, request),
        draft=None if found_draft is None else load_found(found_draft, request.loading),
        on_step=search,
    )
    kept = None
    if request.keeping.asked:
        kept = open_kept(engine, resolved, request.loading, request.keeping)
    session = kept.session if kept else None
    generation = engine.generate(prompt, options, session=session, on_prefill=prefill)
    for warning in generation.settings.warnings:
        terminal.note(f"warning: {warning}")
    bars = (prefill, search)
    return Run(request, resolved, engine, generation, options, found_draft, bars, kept)
