"""Every strategy and its settings from the command line, on the embedded checkpoint."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.conftest import Invoke

PROMPT = ["generate", "-m", "stories260k", "Once upon a time, Lily saw a", "-n", "16"]


def _run(invoke: Invoke, *args: str) -> dict[str, Any]:
    result = invoke(*PROMPT, "--json", *args)
    assert result.code == 0, result.err
    return json.loads(result.out)


@pytest.mark.parametrize(
    "args",
    [
        ["--strategy", "beam", "--num-beams", "3", "--length-penalty", "0"],
        ["--strategy", "beam", "--num-beams", "4", "--num-beam-groups", "2",
         "--diversity-penalty", "1"],
        ["--strategy", "contrastive", "--penalty-alpha", "0.4", "--num-candidates", "3"],
        ["--strategy", "dola"],
        ["--strategy", "prompt-lookup", "--num-draft-tokens", "3"],
        ["--typical-p", "0.9", "--top-n-sigma", "2", "--seed", "1"],
        ["--xtc-probability", "0.5", "--xtc-threshold", "0.2", "--seed", "1"],
        ["--mirostat-tau", "3", "--seed", "1"],
        ["--epsilon-cutoff", "0.01", "--eta-cutoff", "0.01", "--seed", "1"],
        ["--presence-penalty", "1", "--frequency-penalty", "0.5", "--no-repeat-ngram", "3"],
        ["--dry-multiplier", "1", "--dry-allowed-length", "1", "--repetition-last", "64"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_cache_on_and_off_say_the_same(invoke: Invoke, args: list[str]) -> None:
    cached, fresh = _run(invoke, *args), _run(invoke, "--no-kv-cache", *args)
    assert cached["ids"] == fresh["ids"]
    assert len(cached["ids"]) == 16
    assert cached["cache"] == "growing"
    assert fresh["cache"] == "none"


def test_prompt_lookup_is_greedy_id_for_id(invoke: Invoke) -> None:
    assert _run(invoke, "--strategy", "prompt-lookup")["ids"] == _run(invoke)["ids"]


def test_beam_finds_a_likelier_text_than_greedy(invoke: Invoke) -> None:
    beam = _run(invoke, "--strategy", "beam", "--num-beams", "5", "--length-penalty", "0")
    assert sum(beam["logprobs"]) >= sum(_run(invoke)["logprobs"])


def test_no_repeat_ngram_holds(invoke: Invoke) -> None:
    ids = _run(invoke, "-n", "120", "--no-repeat-ngram", "2")
    pairs = list(zip(ids["ids"], ids["ids"][1:], strict=False))
    assert len(set(pairs)) == len(pairs)


def test_settings_are_told_with_their_source(invoke: Invoke) -> None:
    options = _run(invoke, "--strategy", "beam", "--num-beams", "3")["options"]
    assert options["num_beams"] == {"value": 3, "source": "flag"}
    assert options["length_penalty"] == {"value": 1.0, "source": "built-in"}
    assert "temperature" not in options


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--num-beams", "3"], "strategy greedy (built-in) does not read --num-beams"),
        (["--strategy", "beam", "--top-p", ".9"], "strategy beam (flag) does not read --top-p"),
        (["--strategy", "beam", "--seed", "1"], "strategy beam (flag) does not read --seed"),
        (
            ["--strategy", "prompt-lookup", "--mirostat-tau", "3"],
            "strategy prompt-lookup (flag) does not read --mirostat-tau",
        ),
        (["--strategy", "beam", "--logprobs", "2"], "strategy beam does not report --logprobs"),
        (
            ["--strategy", "beam", "--num-beams", "3", "--num-beam-groups", "2"],
            "3 beams cannot be split into 2 groups",
        ),
        (["--typical-p", "1.5"], "typical-p is 1.5; it must lie between 0 and 1"),
        (["--strategy", "beam", "--num-beams", "0"], "num-beams is 0; it must be at least 1"),
    ],
)
def test_what_makes_no_sense_is_refused(invoke: Invoke, args: list[str], message: str) -> None:
    result = invoke(*PROMPT, *args)
    assert result.code == 2
    assert message in result.err
    assert "hint:" in result.err
    assert result.out == ""
