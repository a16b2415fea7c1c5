"""A session reuses exactly the ids that two prompts share, and changes no result."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest
import torch
from torch import Tensor

from llmcli.cache import CacheKind
from llmcli.engine.session import Session
from llmcli.generation.stepper import Stepper
from llmcli.spec.rope import DynamicScaling
from tests.tiny import random_decoder, tiny_spec

_SPEC = tiny_spec()
DECODERS = {
    "full": random_decoder(_SPEC),
    "windowed": random_decoder(
        replace(_SPEC, layers=(replace(_SPEC.layers[0], window=8), _SPEC.layers[1]))
    ),
}
FIRST = list(range(10, 40))
# The next prompt, and how many of its ids a growing cache spares.
NEXT = {
    "longer": ([*FIRST, 1, 2, 3], 30),
    "the same": (FIRST, 29),
    "shorter": (FIRST[:20], 19),
    "other from the 26th on": ([*FIRST[:25], 7, *FIRST[26:]], 25),
    "other from the start": ([5, *FIRST[1:]], 0),
    "one id": ([10], 0),
}


def feed(session: Session, ids: list[int]) -> tuple[Tensor, int]:
    stepper = session.stepper(ids)
    logits = stepper.feed(torch.tensor([ids]))
    assert stepper.prefilled is not None
    return logits, stepper.prefilled


@pytest.mark.parametrize("kind", get_args(CacheKind))
@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize("case", NEXT)
def test_a_second_prompt_equals_a_cold_run(kind: CacheKind, name: str, case: str) -> None:
    ids, spared = NEXT[case]
    session = Session(DECODERS[name], kind)
    feed(session, FIRST)
    logits, prefilled = feed(session, ids)
    cold = Stepper(DECODERS[name], None).feed(torch.tensor([ids]))
    torch.testing.assert_close(logits, cold, atol=1e-9, rtol=0)
    if kind == "none":
        assert prefilled == len(ids)
    elif kind == "growing":
        assert prefilled == len(ids) - spared
    else:
        # A ring that has wrapped cannot be cut back: it is computed anew, or it fits as it is.
        assert prefilled in (len(ids) - spared, len(ids))


def test_new_tokens_are_held_too() -> None:
    session = Session(DECODERS["full"], "growing")
    stepper = session.stepper(FIRST)
    stepper.feed(torch.tensor([FIRST]))
    stepper.feed(torch.tensor([[77]]))
    assert session.held == (*FIRST, 77)
    assert feed(session, [*FIRST, 77, 78])[1] == 1


def test_rows_of_a_search_leave_the_first_one() -> None:
    session = Session(DECODERS["full"], "growing")
    stepper = session.stepper(FIRST)
    stepper.feed(torch.tensor([FIRST]))
    stepper.reorder(torch.tensor([0, 0, 0]))
    stepper.feed(torch.tensor([[1], [2], [3]]))
    logits, prefilled = feed(session, [*FIRST, 1, 9])
    cold = Stepper(DECODERS["full"], None).feed(torch.tensor([[*FIRST, 1, 9]]))
    torch.testing.assert_close(logits, cold, atol=1e-9, rtol=0)
    assert prefilled == 1


def test_a_forward_that_was_cut_short_is_not_trusted() -> None:
    session = Session(DECODERS["windowed"], "ring")
    feed(session, FIRST)
    assert session.cache is not None
    session.cache.begin(())
    assert feed(session, [*FIRST, 1])[1] == 31


def test_a_fork_is_independent() -> None:
    session = Session(DECODERS["full"], "growing")
    feed(session, FIRST)
    fork = session.fork()
    one, computed = feed(fork, [*FIRST, 1])
    assert computed == 1
    two, _ = feed(session, [*FIRST, 2])
    for logits, last in ((one, 1), (two, 2)):
        cold = Stepper(DECODERS["full"], None).feed(torch.tensor([[*FIRST, last]]))
        torch.testing.assert_close(logits, cold, atol=1e-9, rtol=0)


@pytest.mark.parametrize("kind", get_args(CacheKind))
@pytest.mark.parametrize("name", DECODERS)
def test_forks_of_a_prefill_begin_with_nothing_to_compute(kind: CacheKind, name: str) -> None:
    session = Session(DECODERS[name], kind)
    assert session.prefill(FIRST) == len(FIRST)
    for last in (1, 2):
        stepper = session.fork().stepper(FIRST)
        logits = stepper.feed(torch.tensor([FIRST]))
        assert stepper.prefilled == 0
        cold = Stepper(DECODERS[name], None)
        assert torch.equal(logits, cold.feed(torch.tensor([FIRST])))
        new = torch.tensor([[last]])
        torch.testing.assert_close(stepper.feed(new), cold.feed(new), atol=1e-9, rtol=0)
    # and the session itself goes on from it
    assert feed(session, FIRST)[1] == 0
    assert session.held == (() if kind == "none" else tuple(FIRST))


@pytest.mark.parametrize("ids", [FIRST[:-1], [*FIRST, 1], [5, *FIRST[1:]]], ids=len)
def test_what_a_prefill_keeps_is_for_its_own_ids_alone(ids: list[int]) -> None:
    session = Session(DECODERS["full"], "growing")
    session.prefill(FIRST)
    logits, prefilled = feed(session.fork(), ids)
    assert prefilled > 0
    cold = Stepper(DECODERS["full"], None).feed(torch.tensor([ids]))
    torch.testing.assert_close(logits, cold, atol=1e-9, rtol=0)


def test_a_prefill_under_other_rotary_tables_is_not_used() -> None:
    rope = _SPEC.layers[0].rope
    assert rope is not None
    scaled = replace(rope, scaling=DynamicScaling(factor=2.0, original_max_positions=16))
    layers = tuple(replace(layer, rope=scaled) for layer in _SPEC.layers)
    decoder = random_decoder(replace(_SPEC, layers=layers))
    session = Session(decoder, "growing")
    session.prefill(FIRST, planned=40)
    other = session.fork().stepper(FIRST, planned=60)
    logits = other.feed(torch.tensor([FIRST]))
    assert other.prefilled == len(FIRST)
    cold = Stepper(decoder, None, planned=60).feed(torch.tensor([FIRST]))
    torch.testing.assert_close(logits, cold, atol=1e-9, rtol=0)


def test_those_who_watch_the_decoder_are_not_handed_its_old_logits() -> None:
    session = Session(DECODERS["full"], "growing")
    session.prefill(FIRST)
    fork = session.fork()
    stepper = fork.stepper(FIRST)
    logits = stepper.feed_fresh(torch.tensor([FIRST]))
    assert stepper.prefilled == 1
    cold = Stepper(DECODERS["full"], None).feed(torch.tensor([FIRST]))
    torch.testing.assert_close(logits, cold, atol=1e-9, rtol=0)
    states, _ = session.fork().stepper(FIRST).feed_with_states(torch.tensor([FIRST]))
    assert states.shape[1] == len(FIRST)


def test_a_static_cache_takes_what_the_run_may_need() -> None:
    session = Session(DECODERS["full"], "static")
    session.stepper(FIRST, planned=77).feed(torch.tensor([FIRST]))
    assert session.cache is not None
    assert session.cache.capacity == 77
