"""A request to an engine becomes a Generation: what it asks for is checked and put together."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from llmcli.cache import CacheKind
from llmcli.engine.constrained import check_grammar
from llmcli.engine.draft import check_same_tokenizer
from llmcli.engine.generation import Generation
from llmcli.engine.options import GenerateOptions
from llmcli.engine.overflow import check_limits, check_shift, effective_context
from llmcli.engine.prompt import Prompt
from llmcli.engine.session import Session
from llmcli.engine.settings import Settings
from llmcli.errors import UsageError
from llmcli.generation.explain import Recorder
from llmcli.generation.limit import Limit
from llmcli.generation.stop import StopRule
from llmcli.generation.strategies import StrategyOptions, make_strategy, reads
from llmcli.generation.strategies.stages import stage_names
from llmcli.text.detokenizer import Detokenizer, hidden_ids
from llmcli.text.matcher import Matcher

if TYPE_CHECKING:
    from llmcli.engine.engine import Engine


def begin(
    engine: Engine,
    prompt: Prompt,
    options: GenerateOptions,
    *,
    session: Session | None = None,
    on_prefill: Callable[[int, int], None] | None = None,
) -> Generation:
    """As `Engine.generate`. Raises UsageError for what cannot go together."""
    settings = engine.settings(options.flags, fresh_seed=secrets.randbelow(2**32))
    if options.top_logprobs and "top_logprobs" not in reads(settings.strategy):
        raise UsageError(
            f"strategy {settings.strategy} does not report --logprobs above 0",
            hint="use --logprobs 0, or another --strategy",
        )
    recorder = Recorder(options.explain) if options.explain else None
    session = session or engine.session(options.cache)
    context = effective_context(engine.loaded.spec, options.max_context)
    shift = options.overflow == "shift"
    limit = options.limit or Limit(context)
    check_limits(
        options.max_context,
        options.overflow,
        settings.strategy,
        cached=session.kind != "none",
    )
    if shift:
        check_shift(engine.loaded.spec, limit, session.kind)
    own = options.stop_ids is None
    ending = frozenset((stop.id for stop in engine.stop_ids) if own else options.stop_ids or ())
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
        engine.tokenizer,
        prompt.ids,
        hidden=hidden_ids(
            engine.tokenizer,
            ending,
            show_special=options.show_special,
            show_thought_marks=options.show_thought_marks,
        ),
    )
    constraint = (
        Matcher.start(options.grammar, engine.vocabulary, make_detokenizer())
        if options.grammar
        else None
    )
    planned = min(longest + stop.budget, context)
    told = replace(
        _strategy_options(engine, settings, options, kind=session.kind, planned=planned),
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
        processors=stage_names(settings.strategy, settings.params, told, stop_ids=stop.stop_ids),
        make_detokenizer=make_detokenizer,
        constraint=constraint,
        stop_strings=stop_strings,
        ending_ids=tuple(sorted(ending)),
        recorder=recorder,
        load_seconds=engine.load_seconds,
    )


def _strategy_options(
    engine: Engine,
    settings: Settings,
    options: GenerateOptions,
    *,
    kind: CacheKind,
    planned: int,
) -> StrategyOptions:
    read, flags = reads(settings.strategy), options.flags
    for key, given in (("negative_prompt", options.negative), ("draft_model", options.draft)):
        if getattr(flags, key) is not None and given is None:
            raise UsageError(f"--{key.replace('_', '-')} has no meaning here", hint="leave it out")
    negative = options.negative if flags.negative_prompt is not None else None
    draft = None
    if options.draft is not None and flags.draft_model is not None:
        check_same_tokenizer(engine.tokenizer, options.draft.tokenizer)
        own = options.draft.session("none" if kind == "none" else "auto")
        draft = own.stepper((), planned=planned)
    return StrategyOptions(
        top_logprobs=options.top_logprobs,
        line_break_ids=engine.line_break_ids,
        sampling=settings.sampling,
        negative_ids=negative.ids if negative else (),
        draft=draft,
        on_step=options.on_step if "on_step" in read else None,
        **settings.options,
    )
