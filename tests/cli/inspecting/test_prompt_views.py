"""Views of a prompt: the exact text on stories260k, what is refused, and odd tokens."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from llmcli.checkpoint.directory import ModelDir
from llmcli.cli.inspecting.table import VIEWS
from llmcli.cli.inspecting.token_words import compact, quoted
from llmcli.engine.load import load_decoder
from tests.cli.conftest import Invoke

STORIES = Path(__file__).parents[3] / "weights" / "stories260k"
PROMPT = "Once upon a time, there was a little"
OF_PROMPT = [view.name for view in VIEWS if view.needs in ("text", "prompt")]
MINE = ("tokens", "trace", "attention", "lens", "attribution", "next")

GOLDEN = {
    ("tokens",): """\
10 tokens for 36 bytes of the text: 3.60 bytes a token, 1 special. Vocabulary 512, context 512.

at   id  text       bytes                 in the vocabulary
 0    1  '<s>'      3c 73 3e                                 special
 1  403  ' Once'    20 4f 6e 63 65        '▁Once'
 2  407  ' upon'    20 75 70 6f 6e        '▁upon'
 3  261  ' a'       20 61                 '▁a'
 4  378  ' time'    20 74 69 6d 65        '▁time'
 5  432  ','        2c
 6  383  ' there'   20 74 68 65 72 65     '▁there'
 7  286  ' was'     20 77 61 73           '▁was'
 8  261  ' a'       20 61                 '▁a'
 9  376  ' little'  20 6c 69 74 74 6c 65  '▁little'
""",
    ("lens", "--position", "9"): """\
What the model would say after each token, were a layer the last: its stream through the final \
norm and the head. The last row is the model's own answer.

After token 9, ' little':

           likeliest        ' g' has  at rank
embedding  ' little'  100%      0.0%       33
layer 0    ' little'  100%      0.0%        6
layer 1    ' little'   85%      1.9%        3
layer 2    ' b'        36%       22%        3
layer 3    ' b'        47%       30%        2
layer 4    ' g'        64%       64%        1
""",
    ("attribution", "--top", "3"): """\
Logit of ' g' (id 298) after token 9, ' little': 16.9514

part                adds
layer 4 MLP      +6.5851
layer 2 MLP      +3.4727
layer 3 MLP      +1.6817
44 other parts   +5.2120
sum, the logit  +16.9514
""",
    ("next", "--top", "3", "--temperature", "0.5", "--top-k", "2", "--seed", "1"): """\
Strategy sample takes ' b', drawn with 0.0611.

 id  token           logit   model  temperature   top-k
298  ' g'           16.951  64.03%       84.25%  84.39%
268  ' b'           16.108  27.54%       15.58%  15.61%
400  ' do'          13.556   2.15%        0.09%     cut
     tokens left               512          512       2
     entropy, bits            1.56         0.64    0.62
""",
}


@pytest.mark.parametrize("asked", GOLDEN, ids=lambda asked: asked[0])
def test_text(asked: tuple[str, ...], invoke: Invoke) -> None:
    done = invoke("inspect-layers", "-m", str(STORIES), "--view", *asked, PROMPT)
    assert done.code == 0, done.err
    assert done.err == ""
    assert done.out.startswith(GOLDEN[asked])


def test_attention_of_a_head_is_drawn_and_listed(invoke: Invoke) -> None:
    args = ("--view", "attention", "--layer", "2", "--head", "2")
    out = invoke("inspect-layers", "-m", str(STORIES), *args, PROMPT).out
    assert "4 ␣time       |  @  |" in out
    assert "4  ' time'    2 ' upon' 0.91  3 ' a' 0.06" in out


def test_a_step_with_the_cache_and_without(invoke: Invoke) -> None:
    args = ("--view", "trace", "--step", "5")
    out = invoke("inspect-layers", "-m", str(STORIES), *args, PROMPT).out
    assert "Decode step 5 feeds ' Lily' as token 14 of 15" in out
    assert "streams that run  1 of 15: ␣Lily" in out
    assert "reused            14 keys and values in layers 0-4" in out
    assert "streams that run  15 of 15: <s> ␣Once ... ␣Lily" in out
    alone = invoke("inspect-layers", "-m", str(STORIES), *args, "--no-kv-cache", PROMPT).out
    assert "KV cache off" in alone
    assert "KV cache on" not in alone


def test_a_step_of_a_sampled_text(invoke: Invoke) -> None:
    args = ("--view", "trace", "--step", "3", "--json", "-t", "1.5", "--seed")
    steps = [
        json.loads(invoke("inspect-layers", "-m", str(STORIES), *args, seed, PROMPT).out)
        for seed in ("1", "1", "2")
    ]
    first, again, other = (step["trace"]["step"]["tokens"] for step in steps)
    assert first == again != other


def test_json_of_all_agrees_with_the_plain_forward(invoke: Invoke) -> None:
    views = [item for name in MINE for item in ("--view", name)]
    done = invoke("inspect-layers", "-m", str(STORIES), *views, "--json", PROMPT)
    found = json.loads(done.out)
    assert tuple(found) == MINE
    ids = [one["id"] for one in found["tokens"]["tokens"]]
    decoder = load_decoder(ModelDir.open(STORIES), device="cpu", dtype="float32").decoder
    with torch.inference_mode():
        logits = decoder(torch.tensor([ids]))[0, -1]
    probs, best = logits.softmax(-1), int(logits.argmax())
    chance = pytest.approx(float(probs[best]), abs=1e-5)
    assert found["next"]["chosen"] == found["attribution"]["id"] == best
    assert found["next"]["candidates"][0]["values"][0] == chance
    assert found["lens"]["rows"][-1]["cells"][-1]["prob"] == chance
    assert found["trace"]["forward"]["likeliest_prob"] == chance
    shares = [part["share"] for part in found["attribution"]["parts"]]
    assert sum(shares) == pytest.approx(float(logits[best]), abs=1e-9)
    assert abs(shares[-1]) < 1e-4  # rounding
    assert len(found["attention"]["heads"]) == 40


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["lens"], "view lens needs a prompt, and none was given"),
        (["tokens"], "view tokens needs a prompt, and none was given"),
        (["lens", "--position", "10", PROMPT], "--position is 10, out of range: there are 10"),
        (["lens", "--position", "2", "--last", "2", PROMPT], "--position and --last both"),
        (["attribution", "--position", "-1", PROMPT], "--position is -1, out of range"),
        (["attention", "--layer", "5", PROMPT], "--layer is 5, out of range: there are 5 layers"),
        (["attention", "--layer", "0", "--head", "8", PROMPT], "--head is 8, out of range"),
        (["attention", "--head", "1", PROMPT], "--head 1 of which layer?"),
        (["attribution", "--token", "Once upon", PROMPT], "--token 'Once upon' is 2 tokens"),
        (["attribution", "--token", "", PROMPT], "--token '' is no token"),
        (["attribution", "--token", "#512", PROMPT], "--token is 512, out of range"),
        (["trace", "--step", "0", PROMPT], "--step is 0; it must lie between 1 and 502"),
        (["trace", "--step", "503", PROMPT], "--step is 503; it must lie between 1 and 502"),
        (["trace", "--no-kv-cache", PROMPT], "view trace does not read --kv-cache/--no-kv-cache"),
        (["trace", "--temperature", "2", PROMPT], "view trace does not read --temperature"),
        (["next", "--top", "0", PROMPT], "--top is 0; it must lie between 1"),
        (["next", "--temperature", "-1", PROMPT], "temperature is -1"),
        (["lens", "--seed", "1", PROMPT], "view lens does not read --seed"),
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


def test_without_weights_no_torch_is_needed_to_cut_a_text(invoke: Invoke, monkeypatch) -> None:
    monkeypatch.setattr("llmcli.cli.inspecting.subject.load_found", None)
    done = invoke("inspect-layers", "-m", str(STORIES), "--view", "tokens", "a\x1b[2Jb\nc<s>")
    assert done.code == 0
    assert "\x1b" not in done.out
    assert "'\\n'" in done.out
    assert "1b" in done.out


def test_a_text_that_ends_before_the_step(invoke: Invoke) -> None:
    done = invoke("inspect-layers", "-m", str(STORIES), "--view", "trace", "--step", "480", "Once")
    if done.code == 0:  # nothing in the text ended it
        assert "Decode step 480" in done.out
        return
    assert done.code == 1
    assert "there is no step 480: the text ends after" in done.err


def test_odd_tokens_stay_in_their_cells() -> None:
    assert quoted("a\n\x1b[0m") == "'a\\n\\x1b[0m'"
    assert compact(" a\tb", 9) == "␣a\\tb"
    assert compact("[red]日本語", 9) == "[red]日…"
    assert compact("\u202eabc", 4) == "\\u2…"


def test_pages_and_pictures_escape_tokens(invoke: Invoke, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    views = [item for name in MINE for item in ("--view", name)]
    args = ("-m", str(STORIES), *views, "--html", str(page), "--last", "30")
    done = invoke("inspect-layers", *args, "<script>alert(1)</script>\x1b[2J ]]> &amp;")
    assert done.code == 0, done.err
    text = page.read_text(encoding="utf-8")
    assert "<script" not in text
    assert "\x1b" not in text
    assert text.count("<svg") > 10
    assert "data:image/png;base64," in text
