"""Views of what the weights hold and of single parts: exact text on stories260k, refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Invoke

STORIES = Path(__file__).parents[3] / "weights" / "stories260k"
PROMPT = "Once upon a time, there was a little"

GOLDEN = {
    ("neurons", "--layer", "2", "--position", "3", "--top", "1", PROMPT): """\
After token 3, ' a': the neurons that add the longest vectors to the stream, and what each adds \
by itself to the logits of tokens, past all later layers.

Layer 2: 172 neurons, 93 of them above 0; the strongest 32 add half of all lengths.

neuron  activation   adds  promotes                          suppresses
   149      -0.646  0.702  'r' +0.57  'h' +0.54  'om' +0.45  '0' -1.00  'ver' -0.88  '“' -0.82
""",
    ("neighbors", "--token", " his", "--top", "3"): """\
Nearest to ' his' (id 345), by the cosine between rows; its own is 1.988 long.

In the embedding, which is the head too:

token    id  cosine
' her'  311  +0.541
' the'  265  +0.517
' he'   281  +0.478
""",
    ("analogy", "--token", " he", "--token", " she", "--token", " his", "--top", "2"): """\
' she' - ' he' + ' his', of rows of unit length: as ' she' is to ' he', so what is to ' his'? \
The three themselves are left out; in the embedding their cosines are ' he' +0.054, ' she' +0.522, \
' his' +0.617.

In the embedding, which is the head too:

token    id  cosine
' her'  311  +0.836
' H'    320  +0.445
""",
}


@pytest.mark.parametrize("asked", GOLDEN, ids=lambda asked: asked[0])
def test_text(asked: tuple[str, ...], invoke: Invoke) -> None:
    done = invoke("inspect-layers", "-m", str(STORIES), "--view", *asked)
    assert done.code == 0, done.err
    assert done.err == ""
    assert done.out == GOLDEN[asked]


def test_json_has_all_neurons_and_an_id_names_the_same_token(invoke: Invoke) -> None:
    args = ("inspect-layers", "-m", str(STORIES), "--json", "--view")
    layers = json.loads(invoke(*args, "neurons", PROMPT).out)["neurons"]["layers"]
    assert [one["layer"] for one in layers] == [0, 1, 2, 3, 4]
    assert all(len(one["strongest"]) == 3 for one in layers)
    by_text = invoke(*args, "neighbors", "--token", " his").out
    assert by_text == invoke(*args, "neighbors", "--token", "#345").out


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["neurons"], "view neurons needs a prompt"),
        (["neurons", "--layer", "5", PROMPT], "--layer is 5, out of range: there are 5 layers"),
        (["neurons", "--position", "10", PROMPT], "--position is 10, out of range"),
        (["neurons", "--top", "0", PROMPT], "--top is 0; it must lie between 1"),
        (["neighbors"], "view neighbors takes --token 1 times, and it is there 0 times"),
        (["neighbors", "--token", " him"], "--token ' him' is 3 tokens"),
        (["neighbors", "--token", "#512"], "--token is 512, out of range"),
        (["neighbors", "--token", "a", PROMPT], "view neighbors does not read a prompt"),
        (["analogy", "--token", "a", "--token", "b"], "view analogy takes --token 3 times"),
        (["neighbors", "--token", "a", "--svg", "a.svg"], "view neighbors has no picture"),
    ],
)
def test_refusals_come_before_the_weights(
    invoke: Invoke, args: list[str], told: str, monkeypatch
) -> None:
    monkeypatch.setattr("llmcli.cli.inspecting.subject.load_found", None)
    done = invoke("inspect-layers", "-m", str(STORIES), "--view", *args)
    assert done.code == 2, done.err
    assert told in done.err
    assert done.out == ""


def test_only_a_config(invoke: Invoke) -> None:
    done = invoke("inspect-layers", "--preset", "gpt2", "--view", "neighbors", "--token", "a")
    assert done.code == 2
    assert "view neighbors needs weights, but gpt2 is only a config" in done.err
