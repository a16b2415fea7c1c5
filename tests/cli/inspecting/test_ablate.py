"""The ablate view: texts, rankings, what Ctrl-C leaves, refusals."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llmcli.insight import ablation
from tests.cli.conftest import Invoke

STORIES = Path(__file__).parents[3] / "weights" / "stories260k"
PROMPT = "Once upon a time, there was a little"
ABLATE = ("inspect-layers", "-m", str(STORIES), "--view", "ablate")


def test_two_texts_and_what_lies_between(invoke: Invoke) -> None:
    done = invoke(*ABLATE, "--zero-head", "0.3", "--scale-mlp", "2=0.5", "-n", "3", PROMPT)
    assert (done.code, done.err) == (0, "")
    assert (
        done.out
        == """\
as it is
--------
 girl

loss on the prompt 0.0983  on the first text 0.1505

head 0.3 zeroed, MLP 2 times 0.5
--------------------------------
 girl

loss on the prompt 0.1602  on the first text 0.1833

Along the text as it is, both models having read the same tokens, the chance of each token, and \
KL(as it is || changed) in nats; 0.0393 on average, the prompt included:

at  token  as it is  changed      KL
10  ' g'      64.0%    58.4%  0.0211
11  'ir'      99.5%    99.0%  0.0018
12  'l'       99.9%    99.9%  0.0007
"""
    )


def test_a_skipped_layer_changes_the_text(invoke: Invoke) -> None:
    found = json.loads(invoke(*ABLATE, "--skip-layer", "1", "--json", PROMPT).out)
    compared = found["ablate"]["compared"]
    assert compared["base"].startswith(" girl named Lily. She loved to play")
    assert compared["changed"] != compared["base"]
    assert compared["strategy"] == "greedy"
    assert len(compared["change"]["tokens"]) == 10 - 1 + 40


def test_a_change_of_nothing_samples_the_same_text(invoke: Invoke) -> None:
    args = ("--scale-mlp", "0=1", "--temperature", "1.5", "--json", PROMPT)
    compared = json.loads(invoke(*ABLATE, *args).out)["ablate"]["compared"]
    assert compared["strategy"] == "sample"
    assert compared["base"] == compared["changed"]
    assert compared["change"]["mean_kl"] == 0


def test_a_sweep_ranks_by_loss(invoke: Invoke) -> None:
    done = invoke(*ABLATE, "--sweep", "layers", PROMPT + " girl named Lily.")
    assert done.code == 0
    assert (
        done.out
        == """\
Loss on the prompt: 0.1001 nats a token. Below it is how much more it is with one part taken out, \
for 5 of 5 layers.

without    loss   change
layer 0  2.6599  +2.5598
layer 4  1.5969  +1.4968
layer 1  0.8354  +0.7352
layer 3  0.4702  +0.3700
layer 2  0.4522  +0.3521
"""
    )
    few = invoke(*ABLATE, "--sweep", "heads", "--top", "2", PROMPT).out
    assert "for 40 of 40 heads" in few
    assert "35 more between" in few


def test_ctrl_c_leaves_what_there_is(invoke: Invoke, monkeypatch) -> None:
    whole = ablation.sweep

    def pressed(*args: Any) -> Iterator[Any]:
        for at, effect in enumerate(whole(*args)):
            if at == 2:
                raise KeyboardInterrupt
            yield effect

    monkeypatch.setattr(ablation, "sweep", pressed)
    done = invoke(*ABLATE, "--sweep", "mlps", PROMPT)
    assert done.code == 130
    assert "for 2 of 5 MLPs. Interrupted: the others were not tried." in done.out
    assert "layer 1" in done.out
    assert "layer 2" not in done.out


@pytest.mark.parametrize("asked", [("--skip-layer", "1"), ("--sweep", "heads")])
def test_pictures(invoke: Invoke, asked: tuple[str, str]) -> None:
    assert invoke(*ABLATE, *asked, "--svg", "a.svg", PROMPT).code == 0
    assert Path("a.svg").read_text(encoding="utf-8").count("<rect") > 30


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["--skip-layer", "1"], "view ablate needs a prompt"),
        ([PROMPT], "view ablate was told nothing to take out"),
        (["--skip-layer", "5", PROMPT], "--skip-layer is 5, out of range: there are 5 layers"),
        (["--zero-head", "0.8", PROMPT], "the head is 8, out of range: there are 8 heads"),
        (["--sweep", "norms", PROMPT], "--sweep 'norms' is none of heads, layers, mlps"),
        (["--sweep", "heads", "--zero-mlp", "1", PROMPT], "besides it MLP 1 zeroed"),
        (["--sweep", "heads", "-n", "3", PROMPT], "--sweep generates nothing"),
        (["--sweep", "heads", "--no-bos", "a"], "predicts each token of the prompt"),
        (["--skip-layer", "1", "--top", "3", PROMPT], "--top is for --sweep"),
        (["--view", "lens", "--view", "ablate", "--num-return", "2", PROMPT], "does not read"),
    ],
)
def test_refusals_come_before_the_weights(
    invoke: Invoke, args: list[str], told: str, monkeypatch
) -> None:
    monkeypatch.setattr("llmcli.cli.inspecting.subject.load_found", None)
    done = invoke(*ABLATE, *args)
    assert done.code == 2, done.err
    assert told in done.err.replace("do not read", "does not read")
    assert done.out == ""
