"""Names of arms made into flags, and who gets which flag."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from llmcli.engine.arms import PRESETS, Arm, plan_arms
from llmcli.engine.flags import Flags
from llmcli.errors import UsageError


def plan(text: str, **given: Any) -> tuple[Arm, ...]:
    return plan_arms(text, Flags(**given), fresh_seed=9)


def given(arm: Arm) -> dict[str, Any]:
    return {key: value for key, value in asdict(arm.flags).items() if value is not None}


def test_strategies_and_presets() -> None:
    greedy, top_p, beam = plan("greedy, top-p ,beam=3")
    assert given(greedy) == {"strategy": "greedy"}
    assert given(top_p) == {"strategy": "sample", "top_p": 0.9, "seed": 9}
    assert given(beam) == {"strategy": "beam", "num_beams": 3}
    assert [arm.name for arm in (greedy, top_p, beam)] == ["greedy", "top-p", "beam=3"]


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_a_setting_that_sampling_reads(name: str) -> None:
    key, usual = PRESETS[name]
    arm = plan(f"greedy,{name}")[1]
    assert given(arm) == {"strategy": "sample", key: usual, "seed": 9}
    other = plan(f"greedy,{name}=1")[1]
    assert given(other)[key] == 1


def test_a_flag_goes_to_every_arm_that_reads_it() -> None:
    greedy, top_p, min_p, beam = plan(
        "greedy,top-p,min-p,beam", temperature=0.8, num_beams=5, repetition_penalty=1.1, seed=4,
        max_new_tokens=7,
    )  # fmt: skip
    common = {"repetition_penalty": 1.1, "max_new_tokens": 7}
    assert given(greedy) == {"strategy": "greedy", **common}
    drawn = {"strategy": "sample", "temperature": 0.8, "seed": 4, **common}
    assert given(top_p) == {"top_p": 0.9, **drawn}
    assert given(min_p) == {"min_p": 0.1, **drawn}
    assert given(beam) == {"strategy": "beam", "num_beams": 5, **common}


def test_a_flag_named_as_a_preset_is_that_presets_alone() -> None:
    top_p, min_p, other = plan("top-p,min-p,top-p=0.5", top_p=0.5)
    assert given(top_p)["top_p"] == 0.5
    assert "top_p" not in given(min_p)
    assert given(other)["top_p"] == 0.5


def test_dola_draws_where_a_flag_asks_it_to() -> None:
    assert given(plan("dola,greedy")[0]) == {"strategy": "dola"}
    assert given(plan("dola,sample", temperature=0.5)[0]) == {
        "strategy": "dola", "temperature": 0.5, "seed": 9,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "flags", "message"),
    [
        ("greedy", {}, "--compare is 'greedy'; it must name two different arms at least"),
        ("greedy,greedy", {}, "it must name two different arms"),
        ("top-p,top-p=0.9,top-p", {}, "it must name two different arms"),
        ("", {}, "--compare names '', which is no arm"),
        ("greedy,", {}, "--compare names '', which is no arm"),
        ("greedy,[bold]\x1b", {}, "names '[bold]\\x1b', which is no arm"),
        ("greedy=3,beam", {}, "--compare arm greedy takes no value"),
        ("greedy,top-p=x", {}, "arm top-p is given 'x'; it must be a number"),
        ("greedy,top-k=1.5", {}, "arm top-k is given '1.5'; it must be a whole number"),
        ("greedy,beam=x", {}, "arm beam is given 'x'; it must be a whole number"),
        ("greedy,top-p=", {}, "arm top-p is given ''"),
        ("greedy,top-p=2", {}, "top-p is 2; it must lie between 0 and 1"),
        ("greedy,beam", {"strategy": "beam"}, "--compare and --strategy beam contradict"),
        ("greedy,beam", {"top_p": 0.5, "seed": 1}, "reads --top-p, --seed"),
        ("greedy,top-p", {"num_beams": 3}, "no arm of --compare greedy,top-p reads --num-beams"),
        ("greedy,top-p=0.5", {"top_p": 0.6}, "top-p=0.5 and --top-p 0.6 contradict each other"),
        ("greedy,top-p", {"temperature": 0.0}, "arm top-p draws tokens, but the temperature is 0"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(text: str, flags: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as raised:
        plan(text, **flags)
    assert message in raised.value.message
    assert raised.value.hint
