"""--cache: exact kinds change no text, lossy ones begin exact, contradictions are named."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import Invoke

STORY = ("generate", "-m", "stories260k", "Once upon a time", "-n")


@pytest.mark.parametrize("kind", ["growing", "ring", "static", "quantized-8", "quantized-4"])
def test_the_kind_is_used_and_the_text_is_that_without_a_cache(invoke: Invoke, kind: str) -> None:
    cached = json.loads(invoke(*STORY, "40", "--json", "--cache", kind).out)
    fresh = json.loads(invoke(*STORY, "40", "--json", "--no-kv-cache").out)
    assert cached["ids"] == fresh["ids"]
    assert (cached["cache"], fresh["cache"]) == (kind, "none")
    assert cached["options"]["cache"] == {"value": kind, "source": "flag"}
    assert fresh["cache_bytes"] == 0 < cached["cache_bytes"]


def test_a_quantised_cache_is_smaller_once_it_packs(invoke: Invoke) -> None:
    sizes = [
        json.loads(invoke(*STORY, "280", "--ignore-eos", "--json", "--cache", kind).out)[
            "cache_bytes"
        ]
        for kind in ("growing", "quantized-8", "quantized-4")
    ]
    assert sizes[0] > sizes[1] > sizes[2]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--cache", "paged"], "--cache is 'paged'; it must be one of growing, ring, static,"),
        (["--cache", "ring", "--no-kv-cache"], "--no-kv-cache contradicts --cache ring"),
        (["--cache", "offloaded"], "cache offloaded moves keys and values to host memory, but"),
    ],
)
def test_refused(invoke: Invoke, args: list[str], said: str) -> None:
    result = invoke(*STORY, "5", *args)
    assert (result.code, result.out) == (2, "")
    assert said in result.err
