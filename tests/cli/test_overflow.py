"""--max-context and --overflow from the command line."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import Invoke

START = ["generate", "-m", "stories260k", "Once upon a time", "--ignore-eos"]


def test_shift_is_reported(invoke: Invoke) -> None:
    args = ["--max-context", "16", "--overflow", "shift", "-n", "40"]
    told = json.loads(invoke(*START, *args, "--json").out)
    assert (len(told["ids"]), told["finish_reason"]) == (40, "length")
    # 5 + 40 - 1 ids went in, 3 at a time went out.
    assert told["dropped_tokens"] == 30
    assert told["options"]["max_context"] == {"value": 16, "source": "flag"}
    assert told["options"]["overflow"] == {"value": "shift", "source": "flag"}
    verbose = invoke(*START, *args, "-v").err
    assert "context: 16 tokens, at its end shift" in verbose
    assert "shift: 30 tokens dropped from the context" in verbose


def test_stop_is_the_default(invoke: Invoke) -> None:
    told = json.loads(invoke(*START, "--max-context", "16", "-n", "40", "--json").out)
    assert (len(told["ids"]), told["finish_reason"]) == (11, "context")
    assert told["dropped_tokens"] == 0


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--max-context", "0"], "--max-context is 0; it must be at least 1"),
        (["--overflow", "roll"], "--overflow is 'roll'; it must be one of stop, shift"),
        (["--overflow", "shift", "--no-kv-cache"], "does not go with --no-kv-cache"),
        (["--overflow", "shift", "--strategy", "beam"], "strategy beam does not go"),
    ],
)
def test_mistakes_are_told_before_anything_is_loaded(
    invoke: Invoke, args: list[str], said: str
) -> None:
    result = invoke("generate", "-m", "no-such-model", "hi", *args)
    assert result.code == 2
    assert said in result.err
    assert "hint:" in result.err


def test_above_the_model_s_own(invoke: Invoke) -> None:
    result = invoke(*START, "--max-context", "513")
    assert result.code == 2
    assert "--max-context is 513; this model's context holds 512" in result.err
