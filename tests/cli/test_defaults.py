"""Flag over generation_config.json over built-in, key by key, shown with its source (D9)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from llmcli.engine.machine import usable_cpus
from llmcli.plurals import counted
from tests.cli.conftest import Invoke
from tests.puppet import make_puppet

FILE = "generation_config.json"


def puppet(folder: Path, settings: dict[str, Any]) -> str:
    return str(make_puppet(folder / "model", ["a", "b"], generation_config=settings).folder)


@pytest.mark.parametrize(
    ("settings", "flags", "expected"),
    [
        ({}, [], {"strategy": ("greedy", "built-in"), "max_new_tokens": (256, "built-in")}),
        (
            {"do_sample": True, "temperature": 0.6, "top_k": 20},
            [],
            {
                "strategy": ("sample", FILE),
                "temperature": (0.6, FILE),
                "top_k": (20, FILE),
                "top_p": (1.0, "built-in"),
                "min_p": (0.0, "built-in"),
            },
        ),
        (
            {"do_sample": True, "temperature": 0.6, "top_k": 20},
            ["--top-k", "0", "--top-p", "0.5"],
            {
                "strategy": ("sample", "flag"),
                "temperature": (0.6, FILE),
                "top_k": (0, "flag"),
                "top_p": (0.5, "flag"),
            },
        ),
        (
            {"do_sample": True, "temperature": 0.6},
            ["-t", "0"],
            {"strategy": ("greedy", "flag")},
        ),
        (
            {"do_sample": True, "temperature": 0.6},
            ["--strategy", "greedy"],
            {"strategy": ("greedy", "flag")},
        ),
        ({"do_sample": False, "temperature": 0.6}, [], {"strategy": ("greedy", "built-in")}),
        (
            {"do_sample": False, "temperature": 0.6},
            ["--top-k", "5"],
            {"strategy": ("sample", "flag"), "temperature": (0.6, FILE), "top_k": (5, "flag")},
        ),
        ({"temperature": 0}, [], {"strategy": ("greedy", "built-in")}),
        ({"do_sample": True, "temperature": 0}, [], {"strategy": ("greedy", FILE)}),
        (
            {"do_sample": True, "temperature": 0},
            ["-t", "1"],
            {"strategy": ("sample", "flag"), "temperature": (1.0, "flag")},
        ),
        (
            {"do_sample": True, "top_k": None},
            [],
            {"strategy": ("sample", FILE), "top_k": (0, "built-in")},
        ),
        (
            {"max_new_tokens": 1, "repetition_penalty": 1.5, "no_such_key": [1], "top_k": -1},
            [],
            {"max_new_tokens": (1, FILE), "repetition_penalty": (1.5, FILE)},
        ),
        (
            {"max_new_tokens": 1, "repetition_penalty": 1.5},
            ["-n", "0", "--repetition-penalty", "1"],
            {"max_new_tokens": (0, "flag"), "repetition_penalty": (1.0, "flag")},
        ),
    ],
)
def test_key_by_key(
    invoke: Invoke,
    tmp_path: Path,
    settings: dict[str, Any],
    flags: list[str],
    expected: dict[str, tuple[Any, str]],
) -> None:
    result = invoke("generate", "-m", puppet(tmp_path, settings), "hi", "--json", "-v", *flags)
    assert result.code == 0, result.err
    used = json.loads(result.out)["options"]
    for name, (value, source) in expected.items():
        assert used[name] == {"value": value, "source": source}
        assert f"\n{name}: {value} ({source})\n" in result.err
    if expected["strategy" if "strategy" in expected else "max_new_tokens"][0] == "greedy":
        assert "temperature" not in used
        assert "\ntemperature" not in result.err
    assert "warning" not in result.err


def test_a_sampled_run_can_be_repeated_by_the_seed_it_tells(invoke: Invoke, tmp_path: Path) -> None:
    model = make_puppet(tmp_path / "model", list("abcdefgh"), scale=0.02, ends=False).folder
    args = ["generate", "-m", str(model), "hi", "-n", "20", "-t", "1", "--json"]
    first = json.loads(invoke(*args).out)
    seed = first["options"]["seed"]
    assert seed["source"] == "built-in"
    again = json.loads(invoke(*args, "--seed", str(seed["value"])).out)
    assert again["ids"] == first["ids"]
    assert again["options"]["seed"] == {"value": seed["value"], "source": "flag"}
    assert json.loads(invoke(*args).out)["ids"] != first["ids"]


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"temperature": "hot"}, "sets temperature to 'hot', not to a number"),
        ({"temperature": True}, "sets temperature to True, not to a number"),
        ({"temperature": -1}, "temperature is -1"),
        ({"top_k": 2.5}, "sets top_k to 2.5, not to a whole number"),
        ({"top_p": float("nan")}, "sets top_p to nan"),
        ({"top_k": float("inf")}, "sets top_k to inf"),
        ({"top_k": 10**400}, "sets top_k to 1000"),
        ({"max_new_tokens": -1}, "sets max_new_tokens to -1, not to a number from 0 up"),
        ({"do_sample": "yes"}, "sets do_sample to 'yes', not to true or false"),
        ({"top_p": "\x1b[31m[bold]"}, "sets top_p to '\\x1b[31m[bold]', not to a number"),
    ],
)
def test_values_that_make_no_sense(
    invoke: Invoke, tmp_path: Path, settings: dict[str, Any], told: str
) -> None:
    model = puppet(tmp_path, settings)
    result = invoke("generate", "-m", model, "hi")
    assert result.code == 1
    assert result.out == ""
    assert result.err.startswith(f"error: {FILE}")
    assert told in result.err.splitlines()[0]
    # As the hint says, a flag in its place helps.
    key = next(iter(settings))
    flag = ["--strategy", "greedy"] if key == "do_sample" else [f"--{key.replace('_', '-')}", "1"]
    assert invoke("generate", "-m", model, "hi", *flag).code == 0


@pytest.mark.parametrize("text", ["{", "[]", "", "\x00", "[" * 100_000])
def test_broken_file(invoke: Invoke, tmp_path: Path, text: str) -> None:
    model = puppet(tmp_path, {})
    Path(model, FILE).write_text(text, encoding="utf-8")
    result = invoke("generate", "-m", model, "hi")
    assert result.code == 1
    assert result.err.startswith(f"error: {FILE} ")
    assert "\n\nhint: " in result.err
    assert len(result.err.splitlines()) == 3


def test_what_it_asks_for_in_vain_is_a_warning(invoke: Invoke, tmp_path: Path) -> None:
    result = invoke("generate", "-m", puppet(tmp_path, {"forced_eos_token_id": 4}), "hi")
    assert (result.code, result.out) == (0, "ab\n")
    assert result.err.startswith("warning: generation_config.json asks for")
    assert "forced_eos_token_id=4" in result.err


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (
            ["--strategy", "greedy", "--top-p", "0.5"],
            "strategy greedy (flag) does not read --top-p",
        ),
        (["--seed", "3"], "strategy greedy (built-in) does not read --seed"),
        (["--top-p", "2"], "top-p is 2; it must lie between 0 and 1"),
        (["--top-k", "-1"], "top-k is -1; it must"),
        (["-t", "nan"], "temperature is nan; it must"),
        (["-t", "inf"], "temperature is inf; it must"),
        (["--repetition-penalty", "0"], "repetition-penalty is 0; it must be above 0"),
        (["-n", "-1"], "max-new-tokens is -1; it must be at least 0"),
        (["-n", "many"], "--max-new-tokens is 'many'; it must be a whole number below 2**63"),
        (["-n", "9" * 5000], "--max-new-tokens is '999"),
        (["--top-k", "1" + "0" * 400], "--top-k is '1000"),
        (["-t", "hot"], "--temperature is 'hot'; it must be a number"),
        (["--strategy", "best"], "--strategy is 'best'; it must be one of greedy, sample"),
        (["--dtype", "int3"], "--dtype is 'int3'; it must be one of auto, float32,"),
        (["--threads", "0"], "--threads is 0; it must lie between 1 and 1024"),
        (["--threads", "100000"], "--threads is 100000; it must lie between 1 and 1024"),
        (["--logprobs", "-1"], "--logprobs is -1; it must be at least 0"),
        (["--stop", ""], "--stop is empty; it must have at least one character"),
        (["--json", "--echo"], "--json does not read --echo"),
        (["--json", "--raw-output"], "--json does not read --raw-output"),
        (["--device", "tpu"], "device 'tpu' is not one of auto, cpu, cuda, cuda:N, mps"),
        (["--device", "cuda:x"], "device 'cuda:x' is not one of"),
        (["--device", ""], "device '' is not one of"),
    ],
)
def test_flags_that_make_no_sense(
    invoke: Invoke, tmp_path: Path, flags: list[str], told: str
) -> None:
    result = invoke("generate", "-m", puppet(tmp_path, {}), "hi", *flags)
    assert result.code == 2
    assert result.out == ""
    assert result.err.startswith(f"error: {told}")
    assert "\n\nhint: " in result.err
    assert len(result.err.splitlines()) == 3


def test_more_threads_than_cpus_are_told_of(invoke: Invoke) -> None:
    cpus = len(usable_cpus())
    args = ("generate", "-m", "stories260k", "Once", "-n", "1", "--kernels", "off", "--threads")
    assert invoke(*args, str(cpus)).err == ""
    told = invoke(*args, str(cpus + 1))
    assert told.code == 0
    assert told.err.startswith(
        f"warning: {cpus + 1} threads share {counted(cpus, 'CPU')}, and wait"
    )
