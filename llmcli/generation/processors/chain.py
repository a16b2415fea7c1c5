"""The chain: which processors the parameters switch on, in which order.

Biases first, then penalties, then what forbids, then the constraint, then temperature, then the
filters, which so choose among what the constraint allows. Where transformers has a processor, it
stands in transformers' order.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import torch

from llmcli.generation.constraint import Constraint
from llmcli.generation.params import SamplingParams
from llmcli.generation.processors.base import CUT, Processor
from llmcli.generation.processors.biases import (
    first_suppress,
    logit_bias,
    min_new_tokens,
    sequence_bias,
    suppress,
)
from llmcli.generation.processors.constrain import constrain
from llmcli.generation.processors.filters import (
    epsilon_cutoff,
    eta_cutoff,
    min_p,
    temperature,
    top_k,
    top_n_sigma,
    top_p,
    typical_p,
    xtc,
)
from llmcli.generation.processors.penalties import (
    dry,
    no_repeat_ngram,
    presence_and_frequency,
    repetition_penalty,
)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a chain must know of its run: the prompt's length, ids with a meaning, a constraint."""

    prompt: int = 0
    stop_ids: Collection[int] = ()
    line_break_ids: Collection[int] = ()
    constraint: Constraint | None = None


def make_processors(
    params: SamplingParams,
    *,
    sampling: bool,
    surroundings: Surroundings | None = None,
    generator: torch.Generator | None = None,
) -> list[tuple[str, Processor]]:
    """(name, processor) for all that is switched on, in order; filters only where one samples."""
    run = surroundings or Surroundings()
    chain = _before_sampling(params, run)
    return chain + _filters(params, run, generator) if sampling else chain


def _before_sampling(params: SamplingParams, run: Surroundings) -> list[tuple[str, Processor]]:
    chain: list[tuple[str, Processor]] = []
    if params.logit_bias:
        chain.append(("logit-bias", logit_bias(dict(params.logit_bias))))
    if params.sequence_bias:
        chain.append(("sequence-bias", sequence_bias(params.sequence_bias)))
    if params.repetition_penalty != 1:
        last = params.repetition_last
        chain.append(("repetition-penalty", repetition_penalty(params.repetition_penalty, last)))
    if params.presence_penalty or params.frequency_penalty:
        penalise = presence_and_frequency(
            params.presence_penalty, params.frequency_penalty, run.prompt
        )
        chain.append(("presence/frequency-penalty", penalise))
    if params.no_repeat_ngram:
        chain.append(("no-repeat-ngram", no_repeat_ngram(params.no_repeat_ngram)))
    if params.dry_multiplier:
        penalise = dry(
            params.dry_multiplier,
            base=params.dry_base,
            allowed=params.dry_allowed_length,
            last=params.repetition_last,
            breakers=run.line_break_ids,
        )
        chain.append(("dry", penalise))
    if params.bad_words:
        never = [(word, CUT) for word in params.bad_words]
        chain.append(("bad-words", sequence_bias(never)))
    if params.suppress:
        chain.append(("suppress", suppress(params.suppress)))
    if params.begin_suppress:
        chain.append(("begin-suppress", first_suppress(params.begin_suppress, run.prompt)))
    if params.min_length and run.stop_ids:
        chain.append(("min-length", min_new_tokens(params.min_length, run.stop_ids, 0)))
    if params.min_new_tokens and run.stop_ids:
        wait = min_new_tokens(params.min_new_tokens, run.stop_ids, run.prompt)
        chain.append(("min-new-tokens", wait))
    if run.constraint is not None:
        # Last of what forbids, so that it sees whether anything is left.
        chain.append(("constraint", constrain(run.constraint, run.stop_ids, run.prompt)))
    return chain


def _filters(
    params: SamplingParams, run: Surroundings, generator: torch.Generator | None
) -> list[tuple[str, Processor]]:
    table: list[tuple[str, bool, Processor]] = [
        ("temperature", params.temperature != 1, temperature(params.temperature)),
        ("top-k", params.top_k > 0, top_k(params.top_k)),
        ("top-p", params.top_p < 1, top_p(params.top_p)),
        ("min-p", params.min_p > 0, min_p(params.min_p)),
        ("typical-p", params.typical_p < 1, typical_p(params.typical_p)),
        ("epsilon-cutoff", params.epsilon_cutoff > 0, epsilon_cutoff(params.epsilon_cutoff)),
        ("eta-cutoff", params.eta_cutoff > 0, eta_cutoff(params.eta_cutoff)),
        ("top-n-sigma", params.top_n_sigma > 0, top_n_sigma(params.top_n_sigma)),
    ]
    chain = [(name, processor) for name, on, processor in table if on]
    if params.xtc_probability:
        draw = generator or torch.Generator()
        exempt = {*run.stop_ids, *run.line_break_ids}
        exclude = xtc(params.xtc_probability, params.xtc_threshold, draw, exempt)
        chain.append(("xtc", exclude))
    return chain
