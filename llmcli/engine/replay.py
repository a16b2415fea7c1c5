"""A receipt's run once more, and where it first differs. Must not know terminals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from llmcli.cache import CacheKind
from llmcli.engine.engine import Engine
from llmcli.engine.generation import Generation
from llmcli.engine.options import GenerateOptions
from llmcli.engine.prompt import Prompt
from llmcli.engine.receipt import Receipt
from llmcli.errors import LlmcliError
from llmcli.generation.explain import Candidate, Stage


@dataclass(frozen=True, slots=True)
class Difference:
    """The first one. `what` is the ids, or what else differs where all ids are the same.

    At new token `step`, from 1, the receipt has the id `then` and the replay `now`; None is an
    end. `last` is the stage before the choice, in the replay, where there was a choice.
    """

    what: Literal["ids", "finish_reason", "text"]
    step: int
    then: int | None
    now: int | None
    last: Stage | None

    @property
    def top(self) -> tuple[Candidate, ...]:
        """The two likeliest at that place, or fewer."""
        return () if self.last is None else self.last.top[:2]

    @property
    def gap(self) -> float | None:
        """How far their logits lie apart; the smaller, the nearer to a tie."""
        return self.top[0].logit - self.top[1].logit if len(self.top) == 2 else None


def replay(
    engine: Engine,
    receipt: Receipt,
    *,
    cache: CacheKind | Literal["auto"],
    draft: Engine | None = None,
    on_prefill: Callable[[int, int], None] | None = None,
) -> Generation:
    """A generation that has not begun. Raises LlmcliError where the model cannot take the ids."""
    size, context = engine.loaded.spec.vocab_size, engine.loaded.spec.context
    ending, prompt = receipt.ending, receipt.prompt
    negative = receipt.negative_ids
    for place, ids in (
        ("prompt.ids", prompt.ids),
        ("negative_ids", negative or ()),
        ("result.ids", receipt.result.ids),
    ):
        if max(ids, default=0) >= size:
            raise LlmcliError(
                f"the receipt's {place} holds {max(ids)}; this model has ids up to {size - 1}",
                hint="give the model that the receipt is of",
            )
    if (longest := max(len(prompt.ids), len(negative or ()))) >= context:
        raise LlmcliError(
            f"the receipt's prompt has {longest} tokens; the context holds {context}",
            hint="give the model that the receipt is of",
        )
    return engine.generate(
        Prompt(prompt.ids, prompt.text, is_chat=prompt.is_chat),
        GenerateOptions(
            flags=receipt.flags,
            cache=cache,
            stop_strings=ending.stop_strings,
            stop_ids=ending.stop_ids,
            ignore_eos=ending.ignore_eos,
            show_special=ending.show_special,
            max_context=ending.max_context,
            overflow=ending.overflow,
            grammar=receipt.grammar,
            explain=2,
            negative=None if negative is None else Prompt(negative, "", is_chat=False),
            draft=draft,
        ),
        on_prefill=on_prefill,
    )


def first_difference(receipt: Receipt, generation: Generation) -> Difference | None:
    """Of a replay that is over; None where it is identical."""
    then, now = receipt.result, generation
    at = next(
        (at for at, (one, two) in enumerate(zip(then.ids, now.ids, strict=False)) if one != two),
        min(len(then.ids), len(now.ids)),
    )
    old = then.ids[at] if at < len(then.ids) else None
    new = now.ids[at] if at < len(now.ids) else None
    steps = generation.explanation or []
    last = steps[at].stages[-1] if at < len(steps) else None
    if old is not None or new is not None:
        return Difference("ids", at + 1, old, new, last)
    if then.finish_reason != now.finish_reason or then.stop_string != now.matched_stop:
        return Difference("finish_reason", at, None, None, None)
    if then.text != now.text:
        return Difference("text", at, None, None, None)
    return None


def furthest_logprob(receipt: Receipt, generation: Generation) -> float:
    """The largest distance of two logprobs, over the ids that are the same."""
    pairs = zip(receipt.result.ids, receipt.result.logprobs, generation.tokens, strict=False)
    largest = 0.0
    for id_, logprob, token in pairs:
        if id_ != token.id:
            break
        largest = max(largest, abs(logprob - token.logprob))
    return largest
