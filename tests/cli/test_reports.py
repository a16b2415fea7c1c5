"""What --json, --logprobs and --verbose tell."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from llmcli import __version__
from llmcli.cli.options import choosing, ending, loading, output, prompting
from tests.cli.conftest import Invoke
from tests.puppet import make_puppet


@pytest.fixture
def model(tmp_path: Path) -> str:
    return str(make_puppet(tmp_path / "model", ["a", " b"], scale=0.1).folder)


def told(invoke: Invoke, *args: str) -> dict[str, Any]:
    result = invoke("generate", "--json", *args)
    assert (result.code, result.err) == (0, "")
    value: dict[str, Any] = json.loads(result.out)
    return value


def test_one_object(invoke: Invoke, model: str) -> None:
    answer = told(invoke, "-m", model, "hi")
    assert answer["prompt"] == "hi"
    assert len(answer["prompt_ids"]) == 2
    assert answer["text"] == "a b"
    assert len(answer["ids"]) == len(answer["logprobs"]) == 3
    assert all(value < 0 for value in answer["logprobs"])
    assert answer["finish_reason"] == "stop"
    assert answer["stop_string"] is None
    assert answer["version"] == __version__
    assert answer["cache_bytes"] > 0
    assert "top_logprobs" not in answer
    assert set(answer["timings"]) == {
        "load_seconds",
        "first_token_seconds",
        "decode_seconds",
        "prefill_tokens_per_second",
        "decode_tokens_per_second",
    }
    assert all(value > 0 for value in answer["timings"].values())


# Every option and a value for it; those in --json's "options" under their own name.
GIVEN: dict[str, tuple[list[str], Any]] = {
    "max_new_tokens": (["-n", "2"], 2),
    "temperature": (["-t", "0.5"], 0.5),
    "top_k": (["--top-k", "0"], 0),
    "top_p": (["--top-p", "1"], 1.0),
    "min_p": (["--min-p", "0"], 0.0),
    "repetition_penalty": (["--repetition-penalty", "1"], 1.0),
    "seed": (["--seed", "0"], 0),
    "strategy": (["--strategy", "sample"], "sample"),
    "raw": (["--raw"], True),
    "bos": (["--no-bos"], False),
    "parse_special": (["--parse-special"], True),
    "stop": (["--stop", "x", "--stop", "y"], ["x", "y"]),
    "ignore_eos": (["--ignore-eos"], True),
    "show_special": (["--show-special"], True),
    "kv_cache": (["--no-kv-cache"], False),
    "device": (["--device", "cpu"], "cpu"),
    "dtype": (["--dtype", "bfloat16"], "bfloat16"),
    "threads": (["--threads", "1"], 1),
    "kernels": (["--kernels", "off"], "off"),
    "logprobs": (["--logprobs", "0"], 0),
    "max_context": (["--max-context", "64"], 64),
}


def test_every_option_and_its_source(invoke: Invoke, model: str) -> None:
    flags = [part for given, _ in GIVEN.values() for part in given]
    used = told(invoke, "-m", model, "hi", *flags)["options"]
    for name, (_, value) in GIVEN.items():
        assert (name, used[name]["value"], used[name]["source"]) == (name, value, "flag")
    plain = told(invoke, "-m", model, "hi")["options"]
    assert set(GIVEN) - set(plain) == {"temperature", "top_k", "top_p", "min_p", "seed"}
    sources = {name: plain[name]["source"] for name in plain if name in GIVEN}
    assert set(sources.values()) == {"built-in"}
    assert plain["model"]["source"] == "flag"
    # An option added later has to be told as well.
    declared = {
        name
        for part in (prompting, ending, choosing, loading, output)
        for name in vars(part)
        if hasattr(vars(part)[name], "__metadata__")
    }
    elsewhere = {
        "Quantize",  # not beside --dtype: a test of its own
        "Compare",
        "PromptText",
        "PromptFile",
        "Echo",
        "RawOutput",
        "Json",
        "Verbose",
        "Debug",
        "Version",
        "Receipt",
    }
    assert {_snake(name) for name in declared - elsewhere} == {
        *GIVEN,
        "model",
        "system",
        "cache",
        "template",
        "overflow_option",
    }


def _snake(name: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name).lstrip("_")


@pytest.mark.parametrize(("count", "expected"), [(1, 1), (3, 3), (10**6, None)])
def test_likeliest_tokens(invoke: Invoke, model: str, count: int, expected: int | None) -> None:
    answer = told(invoke, "-m", model, "hi", "--logprobs", str(count))
    tops = answer["top_logprobs"]
    assert len(tops) == 3
    for top, id_, logprob in zip(tops, answer["ids"], answer["logprobs"], strict=True):
        assert expected is None or len(top) == expected
        assert (top[0]["id"], top[0]["logprob"]) == (id_, logprob)
        assert all(one["logprob"] >= two["logprob"] for one, two in pairwise(top))
    if expected is None:
        total = sum(math.exp(one["logprob"]) for one in tops[0])
        assert total == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize(("count", "columns"), [(0, 0), (2, 2)])
def test_logprobs_on_stderr(invoke: Invoke, model: str, count: int, columns: int) -> None:
    result = invoke("generate", "-m", model, "hi", "--logprobs", str(count))
    assert result.out == "a b\n"
    lines = result.err.splitlines()
    assert [line.split()[0] for line in lines] == ["'a'", "'", "'<|end|>'"]
    assert all(("  |  " in line) == (columns > 0) for line in lines)


def test_verbose_tells_what_is_used_and_why(invoke: Invoke, model: str) -> None:
    result = invoke("generate", "-m", model, "hi", "-v", "--no-kv-cache", "--dtype", "float32")
    assert result.out == "a b\n"
    for line in (
        f"model: model (llama) from {model}",
        "dtype: float32 (asked for)",
        "cache: none; context: 2048 tokens",
        "prompt: 2 tokens, raw text",
        "finish reason: stop",
        "cache 0.0 MB, peak memory ",
    ):
        assert line in result.err
    assert "device: cpu (auto: " in result.err or "device: cuda" in result.err


def test_verbose_names_the_stop_string(invoke: Invoke, model: str) -> None:
    result = invoke("generate", "-m", model, "hi", "-v", "--stop", "b")
    assert "finish reason: stop (stop string 'b')" in result.err


@pytest.mark.parametrize("kind", ["int8", "int4"])
def test_quantised_weights_are_told(invoke: Invoke, model: str, kind: str) -> None:
    """Asked for, or not done at all."""
    args = ("-m", model, "--quantize", kind, "hi")
    settings = told(invoke, *args)["options"]
    assert settings["quantize"] == {"value": kind, "source": "flag"}
    assert settings["dtype"]["value"] == "float32"
    assert f"weights: quantised to {kind} while loading" in invoke("generate", "-v", *args).err
    assert told(invoke, "-m", model, "hi")["options"]["quantize"]["value"] is None
    assert "weights: quantised" not in invoke("generate", "-v", "-m", model, "hi").err
