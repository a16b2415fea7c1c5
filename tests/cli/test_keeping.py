"""--save-cache and --load-cache as they are typed: reuse, refusals, files written whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Invoke
from tests.puppet import make_puppet

GENERATE = ("generate", "-m", "stories260k")
STORY = "Once upon a time, there was a little girl named Lily"


def told(invoke: Invoke, *args: str) -> Any:
    result = invoke(*GENERATE, *args, "--json")
    assert result.code == 0, result.err
    return json.loads(result.out)


def test_a_later_process_goes_on_from_it(invoke: Invoke, tmp_path: Path) -> None:
    path = str(tmp_path / "story.safetensors")
    first = told(invoke, STORY, "-n", "5", "--save-cache", path)
    assert [one.name for one in tmp_path.glob("*.*")] == ["story.safetensors"]
    longer = STORY + ". She"
    again = told(invoke, longer, "-n", "8", "--load-cache", path)
    cold = told(invoke, longer, "-n", "8")
    assert again["ids"] == cold["ids"]
    assert cold["prefilled_tokens"] == len(cold["prompt_ids"])
    assert again["prefilled_tokens"] <= len(cold["prompt_ids"]) - len(first["prompt_ids"]) + 1
    verbose = invoke(*GENERATE, longer, "-n", "8", "--load-cache", path, "-v").err
    assert f"of {len(cold['prompt_ids'])} tokens, " in verbose


def test_loaded_and_saved_again(invoke: Invoke, tmp_path: Path) -> None:
    path = str(tmp_path / "c")
    told(invoke, STORY, "-n", "1", "--save-cache", path)
    more = told(invoke, STORY + ".", "-n", "1", "--load-cache", path, "--save-cache", path)
    assert told(invoke, STORY + ".", "-n", "3", "--load-cache", path)["prefilled_tokens"] == 1
    assert more["prefilled_tokens"] < 4


@pytest.mark.parametrize(
    ("made", "used", "said"),
    [
        ((), ("--dtype", "bfloat16"), "was made in float32, and this run computes in bfloat16"),
        (("--cache", "static"), (), "was made with --cache static, and this run uses growing"),
    ],
)
def test_made_otherwise_it_is_not_used_and_said_so(
    invoke: Invoke, tmp_path: Path, made: tuple[str, ...], used: tuple[str, ...], said: str
) -> None:
    path = str(tmp_path / "c")
    told(invoke, STORY, "-n", "1", "--save-cache", path, *made)
    result = invoke(*GENERATE, STORY, "-n", "4", "--load-cache", path, *used, "--json")
    assert result.code == 0
    assert f"warning: {path} is not used: it {said}" in result.err
    assert json.loads(result.out)["ids"] == told(invoke, STORY, "-n", "4", *used)["ids"]


def test_another_checkpoint(invoke: Invoke, tmp_path: Path) -> None:
    model = str(make_puppet(tmp_path / "model", ["a", " b"]).folder)
    path = str(tmp_path / "c")
    told(invoke, STORY, "-n", "1", "--save-cache", path)
    result = invoke("generate", "-m", model, "hi", "-n", "2", "--load-cache", path)
    assert result.code == 0
    assert "is not used: it was made with another checkpoint" in result.err


@pytest.mark.parametrize("strategy", ["sample", "beam", "prompt-lookup", "contrastive", "dola"])
def test_every_strategy_goes_on_from_it(invoke: Invoke, tmp_path: Path, strategy: str) -> None:
    path = str(tmp_path / "c")
    seed = ("--seed", "3") if strategy == "sample" else ()
    args = (STORY, "-n", "6", "--strategy", strategy, *seed)
    cold = told(invoke, *args, "--save-cache", path)
    assert told(invoke, *args, "--load-cache", path)["ids"] == cold["ids"]


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["--save-cache", "{}/c", "--no-kv-cache"], 2, "kind none cannot be saved or loaded"),
        (["--save-cache", "{}/c", "--cache", "quantized-4"], 2, "of kind quantized-4 cannot be"),
        (["--load-cache", "{}/none"], 2, "/none is not a file"),
        (["--save-cache", "{}/no/c"], 2, "there is no folder"),
        (["--save-cache", "{}"], 2, "is a folder"),
        (["--save-cache", "{}/other"], 2, "is there, and it is no prompt cache"),
        (["--load-cache", "{}/other"], 1, "/other is not a whole prompt cache"),
        (["--save-cache", "{}/c", "--compare", "greedy,top-p"], 2, "--compare does not read --sav"),
        (["--save-cache", "{}/c", "--num-samples", "2", "-t", "1"], 2, "does not read --save-cac"),
    ],
)
def test_refused(invoke: Invoke, tmp_path: Path, args: list[str], code: int, said: str) -> None:
    (tmp_path / "other").write_text("precious")
    result = invoke(*GENERATE, "hi", *(arg.format(tmp_path) for arg in args))
    assert (result.code, result.out) == (code, "")
    assert said in result.err
    assert (tmp_path / "other").read_text() == "precious"
