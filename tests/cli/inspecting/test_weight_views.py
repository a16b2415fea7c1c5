"""Views of what the weights hold and of single parts: exact text on stories260k, refusals."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from llmcli.checkpoint.directory import ModelDir
from llmcli.cli.columns import cells_wide
from llmcli.cli.inspecting.table import find_views, load_drawing
from llmcli.engine.load import load_decoder
from llmcli.insight.superposition import measure
from tests.cli.conftest import Invoke

STORIES = Path(__file__).parents[3] / "weights" / "stories260k"
PROMPT = "Once upon a time, there was a little"

GOLDEN = {
    ("positions",): """\
layers               0-4
rotary               8 of 8 numbers a head turn, in pairs of halves
theta                10,000
scaling              none
context              512
turn less than once  2 of 4 pairs
distance alone       holds: scores of unit vectors at the same distance differ by at most \
tiny in the first 512 positions

pair  radians a token  tokens a turn  turns
   0                1            6.3  81.49
   1              0.1           62.8   8.15
   2             0.01          628.3   0.81
   3            0.001        6,283.2   0.08
""",
    ("superposition", "--what", "mlp-out"): """\
directions            172 of mlp-out of layer 2, 64 wide
compared              all of them: 14,706 pairs
within 89-91 degrees  9.94%; random 10.97%
mean angle            89.96 degrees; random 90.00
off 90, r.m.s.        8.47 degrees; random 7.22

degrees   share  random
50-55     0.01%   0.00%  |
55-60     0.03%   0.00%  |
60-65     0.10%   0.02%  |
65-70     0.98%   0.24%  |
70-75     2.79%   1.60%  ##|
""",
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
    # Rounding differs between machines.
    out = re.sub(r"[0-9]\.[0-9]e-0[67]", "tiny", done.out)
    assert out.startswith(GOLDEN[asked])
    if asked[0] != "superposition":
        assert out == GOLDEN[asked]


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
        (["neighbors"], "view neighbors takes 1 --token, and 0 were given"),
        (["neighbors", "--token", " him"], "--token ' him' is 3 tokens"),
        (["neighbors", "--token", "#512"], "--token is 512, out of range"),
        (["neighbors", "--token", "a", PROMPT], "view neighbors does not read a prompt"),
        (
            ["analogy", "--token", "a", "--token", "b"],
            "view analogy takes 3 --token, and 2 were given",
        ),
        (["superposition", "--what", "heads"], "--what 'heads' is none of embedding"),
        (["superposition", "--layer", "1"], "--layer is not for --what embedding"),
        (["superposition", "--what", "mlp-in", "--layer", "5"], "--layer is 5, out of range"),
        (["positions", "--context", "1"], "--context is 1; it must lie between 2"),
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


def test_an_own_unembedding_is_needed(invoke: Invoke) -> None:
    args = ("--view", "superposition", "--what", "unembedding")
    done = invoke("inspect-layers", "-m", str(STORIES), *args)
    assert done.code == 2
    assert "the unembedding is the embedding itself in this checkpoint" in done.err


@pytest.mark.parametrize("view", ["positions", "superposition"])
def test_pictures(invoke: Invoke, view: str) -> None:
    args = ("-m", str(STORIES), "--view", view, "--svg", "a.svg", "--json")
    assert view in json.loads(invoke("inspect-layers", *args).out)
    assert "<polyline" in Path("a.svg").read_text(encoding="utf-8")


@pytest.mark.parametrize("preset", ["gpt3-175b", "phi-3-mini", "transformer-base"])
def test_positions_of_a_config_alone(invoke: Invoke, preset: str) -> None:
    done = invoke("inspect-layers", "--preset", preset, "--view", "positions")
    assert done.code == 0
    assert ("does not hold" in done.out) == (preset == "transformer-base")
    assert ("which are not at hand" in done.out) == (preset == "gpt3-175b")
    assert ("tokens a turn" in done.out) == (preset == "phi-3-mini")


def test_only_a_config(invoke: Invoke) -> None:
    done = invoke("inspect-layers", "--preset", "gpt2", "--view", "neighbors", "--token", "a")
    assert done.code == 2
    assert "view neighbors needs weights, but gpt2 is only a config" in done.err


@pytest.mark.parametrize("width", [40, 60, 100])
def test_angles_fit_the_terminal(width: int) -> None:
    decoder = load_decoder(ModelDir.open(STORIES), device="cpu", dtype="float32").decoder
    found = measure(decoder, "embedding")
    lines = load_drawing(find_views(["superposition"])[0]).lines(found, width)
    assert max(map(cells_wide, lines)) <= width
