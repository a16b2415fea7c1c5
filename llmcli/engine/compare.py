"""One prompt through several arms: one prefill, a forked cache for each.

Must not know terminals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from llmcli.engine.arms import Arm
from llmcli.engine.engine import Engine
from llmcli.engine.generation import Generation
from llmcli.engine.options import GenerateOptions
from llmcli.engine.prompt import Prompt
from llmcli.generation.metrics import distinct, repeated


@dataclass(frozen=True, slots=True)
class Scores:
    """What an arm's text is like; None where there is too little of it to tell.

    `mean_logprob` is the model's own, before any processor. `rate` counts all new tokens over
    all seconds since the arm began, the prompt having been read before.
    """

    tokens: int
    mean_logprob: float | None
    distinct_1: float | None
    distinct_2: float | None
    repeats: float | None
    rate: float | None


def compare(
    engine: Engine,
    prompt: Prompt,
    arms: Sequence[Arm],
    options: GenerateOptions,
    *,
    on_prefill: Callable[[int, int], None] | None = None,
) -> Iterator[tuple[Arm, Generation]]:
    """Each arm with a generation that has not begun; ask for the next when it is over.

    Every arm gives what it would give alone. Contrastive search needs the prompt's states and
    DoLa its last ones, which no cache keeps: these two compute them anew.
    """
    session = engine.session(options.cache)
    room = engine.loaded.spec.context - len(prompt.ids)
    first = engine.generate(prompt, replace(options, flags=arms[0].flags))
    budget = min(first.settings.max_new_tokens, room)
    session.prefill(prompt.ids, planned=len(prompt.ids) + budget, on_progress=on_prefill)
    for arm in arms:
        each = replace(options, flags=arm.flags)
        yield arm, engine.generate(prompt, each, session=session.fork())


def scores(generation: Generation) -> Scores:
    """Of a generation that is over, or was broken off."""
    ids, stats = generation.ids, generation.stats
    seconds = (stats.first_token_seconds or 0.0) + stats.decode_seconds
    total = sum(token.logprob for token in generation.tokens)
    return Scores(
        len(ids),
        total / len(ids) if ids else None,
        distinct(ids, 1),
        distinct(ids, 2),
        repeated(ids),
        len(ids) / seconds if ids and seconds else None,
    )
