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
        ["--strategy", "dola", "--dola-layers", "0,2"],
        ["--draft-model", "stories260k"],
        ["--draft-model", "stories260k", "-t", "0.8", "--seed", "1"],
        ["--guidance-scale", "2", "--negative-prompt", "The big dog was"],
        ["--guidance-scale", "2", "-t", "0.8", "--seed", "1"],
        ["--logit-bias", " little=-9", "--suppress", " was"],
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


def test_speculative_is_greedy_id_for_id_and_tells_its_guesses(invoke: Invoke) -> None:
    told = _run(invoke, "--draft-model", "stories260k")
    assert told["ids"] == _run(invoke)["ids"]
    assert told["guesses"]["rate"] == 1.0
    assert told["guesses"]["forwards"] < 8
    result = invoke(*PROMPT, "-v", "--strategy", "prompt-lookup")
    assert "guesses: " in result.err
    assert "guesses" not in _run(invoke)


def test_a_suppressed_token_is_not_said_and_a_favoured_one_is(invoke: Invoke) -> None:
    plain = _run(invoke)
    assert plain["processors"] == []
    first = plain["ids"][0]
    told = _run(invoke, "--suppress", str(first))
    assert first not in told["ids"]
    assert told["processors"] == ["suppress"]
    told = _run(invoke, "--logit-bias", " Lily=+99")
    assert set(told["ids"]) == {317}
    assert told["options"]["logit_bias"] == {
        "value": [{"id": 317, "token": " Lily", "bias": 99.0}],
        "source": "flag",
    }


def test_several_texts(invoke: Invoke) -> None:
    args = ["--strategy", "beam", "--num-beams", "3", "--num-return", "3"]
    told = _run(invoke, *args)
    found = told["sequences"]
    assert len(found) == 3
    assert [one["score"] for one in found] == sorted((one["score"] for one in found), reverse=True)
    assert (found[0]["text"], found[0]["ids"]) == (told["text"], told["ids"])
    assert len({one["text"] for one in found}) == 3
    shown = invoke(*PROMPT, *args).out
    expected = [
        f"== {place}/3 score {one['score']:.4f} length ==\n{one['text']}\n"
        for place, one in enumerate(found, start=1)
    ]
    assert shown == "".join(expected)
    cut = _run(invoke, *args, "--stop", "a")["sequences"]
    assert all("a" not in one["text"] for one in cut)


def test_the_order_of_the_processors_is_told(invoke: Invoke) -> None:
    args = ["--top-p", ".9", "-t", ".8", "--repetition-penalty", "1.1", "--guidance-scale", "2"]
    result = invoke(*PROMPT, "-v", *args, "--mirostat-tau", "3", "--suppress", "5")
    order = "guidance, repetition-penalty, suppress, temperature, top-p, mirostat"
    assert f"processors: {order}\n" in result.err
    assert "processors: none\n" in invoke(*PROMPT, "-v").err


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
        (["--num-return", "2"], "strategy greedy (built-in) does not read --num-return"),
        (
            ["--strategy", "beam", "--num-return", "5"],
            "num-return is 5, but there are only 4 beams",
        ),
        (["--strategy", "speculative"], "strategy speculative needs --draft-model"),
        (
            ["--strategy", "beam", "--guidance-scale", "2"],
            "strategy beam (flag) does not read --guidance-scale",
        ),
        (["--negative-prompt", "no"], "a negative prompt has no effect"),
        (["--strategy", "dola", "--dola-layers", "0,99"], "dola-layers are 0, 99"),
        (["--strategy", "dola", "--dola-layers", "x"], "--dola-layers is 'x'"),
        (["--suppress", "512"], "id 512; this model's ids lie between 0 and 511"),
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


def test_the_negative_prompt_has_to_fit_and_takes_of_the_room(invoke: Invoke) -> None:
    result = invoke(*PROMPT, "--guidance-scale", "2", "--negative-prompt", "word " * 600)
    assert result.code == 1
    assert "the negative prompt has 1802 tokens; the context holds 512" in result.err
    long = ["--guidance-scale", "2", "--negative-prompt", "word " * 169, "--ignore-eos"]
    told = _run(invoke, *long)
    assert (len(told["ids"]), told["finish_reason"]) == (3, "context")
