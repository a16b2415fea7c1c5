"""--cache: exact kinds change no text, lossy ones begin exact, contradictions are named."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.conftest import Invoke

STORY = ("generate", "-m", "stories260k", "Once upon a time", "-n")
# Long enough for the oldest keys to be packed at the step after it.
LONG = ("generate", "-m", "stories260k", "Once upon a time there was a dog. " * 35, "-n")
_FRESH: list[dict[str, Any]] = []


def _fresh(invoke: Invoke) -> dict[str, Any]:
    """The text without a cache, which is one for all kinds."""
    if not _FRESH:
        _FRESH.append(json.loads(invoke(*STORY, "40", "--json", "--no-kv-cache").out))
    return _FRESH[0]


@pytest.mark.parametrize("kind", ["growing", "ring", "static", "quantized-8", "quantized-4"])
def test_the_kind_is_used_and_the_text_is_that_without_a_cache(invoke: Invoke, kind: str) -> None:
    cached = json.loads(invoke(*STORY, "40", "--json", "--cache", kind).out)
    fresh = _fresh(invoke)
    assert cached["ids"] == fresh["ids"]
    assert (cached["cache"], fresh["cache"]) == (kind, "none")
    assert cached["options"]["cache"] == {"value": kind, "source": "flag"}
    assert fresh["cache_bytes"] == 0 < cached["cache_bytes"]


def test_a_quantised_cache_is_smaller_once_it_packs(invoke: Invoke) -> None:
    told = [
        json.loads(invoke(*LONG, "3", "--ignore-eos", "--json", "--cache", kind).out)
        for kind in ("growing", "quantized-8", "quantized-4")
    ]
    assert len(told[0]["prompt_ids"]) > 256
    sizes = [one["cache_bytes"] for one in told]
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
