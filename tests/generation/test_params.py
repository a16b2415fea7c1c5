"""SamplingParams: what is refused, with the value and the range named."""

from __future__ import annotations

import math
from dataclasses import fields, replace

import pytest

from llmcli.errors import UsageError
from llmcli.generation.params import SAMPLING_KEYS, SAMPLING_ONLY, SamplingParams

NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("temperature", [-1.0, -1e-9, NAN, INF, -INF]),
        ("top_k", [-1, -(10**9)]),
        ("top_p", [-0.1, 1.0001, 2.0, NAN, INF]),
        ("min_p", [-0.1, 1.0001, NAN, INF]),
        ("repetition_penalty", [0.0, -1.0, NAN, INF]),
        ("seed", [-1, 2**63]),
        ("presence_penalty", [NAN, INF, -INF]),
        ("mirostat_eta", [0.0, 1.5]),
        ("xtc_threshold", [-0.1, 0.6]),
        ("dry_base", [0.9, NAN]),
    ],
)
def test_refused(key: str, values: list[float]) -> None:
    for value in values:
        with pytest.raises(UsageError) as caught:
            SamplingParams(**{key: value})
        assert key.replace("_", "-") in caught.value.message
        assert f"{value:g}" in caught.value.message
        assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("temperature", [0.0, -0.0, 1e-9, 1e-45, 1e6]),
        ("top_k", [0, 1, 10**9]),
        ("top_p", [0.0, 1e-8, 1.0]),
        ("min_p", [0.0, 1e-8, 1.0]),
        ("repetition_penalty", [1e-9, 1.0, 1e6]),
        ("seed", [None, 0, 2**63 - 1]),
    ],
)
def test_accepted(key: str, values: list[float]) -> None:
    for value in values:
        assert getattr(SamplingParams(**{key: value}), key) == value


def test_what_only_sampling_reads() -> None:
    assert set(SAMPLING_ONLY) < set(SAMPLING_KEYS)
    assert {"temperature", "top_k", "seed", "xtc_threshold"} <= set(SAMPLING_ONLY)
    assert not {"repetition_penalty", "logit_bias", "min_new_tokens"} & set(SAMPLING_ONLY)


def test_every_number_is_off_by_default_and_named_when_refused() -> None:
    defaults = SamplingParams()
    for one in fields(SamplingParams):
        if one.metadata:
            with pytest.raises(UsageError, match=one.name.replace("_", "-")):
                replace(defaults, **{one.name: NAN})
