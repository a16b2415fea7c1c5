"""Views from headers alone: the exact text for stories260k, every family, narrow terminals."""

from __future__ import annotations

import json

import pytest

from llmcli.cli.columns import cells_wide, pairs, table
from llmcli.cli.inspecting.asked import Asked
from llmcli.cli.inspecting.showing import as_json
from llmcli.cli.inspecting.subject import PromptSource, Subject
from llmcli.cli.inspecting.table import VIEWS, load_drawing
from llmcli.cli.options import Loading, Prompting
from llmcli.insight.presets import PRESETS
from tests.cli.conftest import Invoke
from tests.insight.configs import EVERY_ROW, row_facts
from tests.oracle import Row

FROM_CONFIG = [view for view in VIEWS if view.needs == "config" and view.name != "plan"]

GOLDEN = {
    "summary": """\
name        stories260k
family      llama
parameters  260,032
layers      5 of width 64
vocabulary  512 tokens, tied head
context     512 tokens
attention   grouped-query (GQA), 8 heads of 8, 4 of keys and values
            every layer sees all earlier tokens
positions   rotary, theta 10,000
norm        RMSNorm before attention and MLP
MLP         gated (SwiGLU), silu, 172 wide
stored      1.0 MB F32 in 47 tensors
KV cache    640 B a token in 16 bits
origin      embedded
licence     MIT
""",
    "tree": """\
Decoder  260,032
  (embed_tokens): Embedding, also the head [512, 64]  <- model.embed_tokens.weight F32
  (layers): Layers  227,200
    (0-4): 5 x Block, sees all, rotary theta 10,000  45,440 each
      (attn_norm): RMSNorm [64]                       \
<- model.layers.{i}.input_layernorm.weight F32
""",
    "params": """\
PART                              PARAMETERS   SHARE  A LAYER
embedding                             32,768   12.6%        -
attention                             61,440   23.6%   12,288
  query                               20,480    7.9%    4,096
  key                                 10,240    3.9%    2,048
  value                               10,240    3.9%    2,048
  output                              20,480    7.9%    4,096
MLP                                  165,120   63.5%   33,024
  gate                                55,040   21.2%   11,008
  up                                  55,040   21.2%   11,008
  down                                55,040   21.2%   11,008
norms                                    704    0.3%      128
unembedding            tied to the embedding
total                                260,032  100.0%   45,440
of it weight matrices                259,328   99.7%
""",
    "cache": """\
640 B a token, with keys and values of 16 bits; the context is 512 tokens

LAYERS        NUMBER  A LAYER HOLDS  A TOKEN ADDS    AT 512
0-4                5  all keys              128 B  327.7 kB
""",
    "masks": """\
Rows are queries, columns keys: # is seen, . is not.

layers 0-4: full, all earlier tokens
 0 # . . . . . . . . . . .
 1 # # . . . . . . . . . .
""",
}


@pytest.mark.parametrize("name", GOLDEN)
def test_goldens(invoke: Invoke, name: str) -> None:
    done = invoke("inspect-layers", "-m", "stories260k", "--view", name)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(GOLDEN[name])


def _subject(row: Row) -> Subject:
    return Subject(row_facts(row), Loading(), PromptSource(prompting=Prompting()))


@EVERY_ROW
def test_every_view_works_for_every_family(row: Row) -> None:
    for view in FROM_CONFIG:
        drawing = load_drawing(view)
        found = drawing.compute(_subject(row), Asked())
        assert json.loads(json.dumps(as_json(found), allow_nan=False)), view.name
        text = drawing.lines(found, None)
        assert text, view.name
        assert not any("None" in line or "\n" in line for line in text), view.name
        for picture in drawing.pictures(found) if drawing.pictures else []:
            assert picture.width > 50, view.name


@pytest.mark.parametrize("preset", PRESETS)
def test_lines_fit_the_terminal(preset: str) -> None:
    from llmcli.insight.presets import preset_facts

    subject = Subject(preset_facts(preset), Loading(), PromptSource(prompting=Prompting()))
    for view in FROM_CONFIG:
        drawing = load_drawing(view)
        found = drawing.compute(subject, Asked())
        # A tree's own lines are names and shapes, which are not broken.
        for width in (80,) if view.name == "tree" else (40, 80):
            widest = max(drawing.lines(found, width), key=cells_wide)
            assert cells_wide(widest) <= width, (view.name, widest)


def test_several_views_and_json(invoke: Invoke) -> None:
    args = ["inspect-layers", "--preset", "gpt2", "--view", "params", "--view", "masks"]
    text = invoke(*args).out
    assert text.index("== params ==") < text.index("== masks ==")
    both = json.loads(invoke(*args, "--json").out)
    assert list(both) == ["params", "masks"]
    assert both["params"]["total"] == 124_439_808


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["--view", "tree", "--layer", "5"], "--layer is 5, out of range: there are 5 layers"),
        (["--view", "tree", "--layer", "-1"], "give 0 to 4"),
        (["--view", "masks", "--layer", "7"], "out of range"),
        (["--view", "tree", "--search", "zzz"], "no module or stored tensor has 'zzz'"),
        (["--view", "tree", "--depth", "-1"], "--depth is -1; it must lie between 0 and"),
        (
            ["--view", "cache", "--context", "513"],
            "--context is 513; it must lie between 1 and 512",
        ),
        (["--view", "masks", "--length", "0"], "--length is 0"),
    ],
)
def test_out_of_range(invoke: Invoke, args: list[str], told: str) -> None:
    done = invoke("inspect-layers", "-m", "stories260k", *args)
    assert (done.code, done.out) == (2, "")
    assert told in done.err


def test_an_empty_text_is_said_to_be_one(invoke: Invoke) -> None:
    done = invoke("inspect-layers", "-m", "stories260k", "--view", "tokens", "")
    assert done.code == 0
    told = "The text is empty; in front of every text stands 1 token, 1 special."
    assert done.out.startswith(told)
    bare = invoke("inspect-layers", "-m", "stories260k", "--view", "tokens", "", "--no-bos")
    assert (bare.code, bare.out) == (1, "")
    assert "the prompt is empty" in bare.err


def test_a_config_that_is_not_there_is_named_as_typed(invoke: Invoke) -> None:
    done = invoke("inspect-layers", "--config", "no/such.json")
    assert (done.code, done.out) == (2, "")
    assert "--config no/such.json does not exist" in done.err


def test_a_table_too_wide_is_stacked() -> None:
    header, rows = ("NAME", "N", "M"), [("first", "1000", ""), ("second", "22", "3000")]
    assert table(header, rows, 18) == [
        "NAME       N     M",
        "first   1000",
        "second    22  3000",
    ]
    stacked = ["NAME  first", "N     1000", "", "NAME  second", "N     22", "M     3000"]
    assert table(header, rows, 17) == stacked
    assert pairs([("a", "one two three four five")], 24) == ["a  one two three four", "   five"]
    assert table(("N",), [("東京",), ("a",)], None) == ["N", "東京", "a"]


def test_no_colour_and_no_fitting_in_a_pipe(invoke: Invoke) -> None:
    done = invoke("inspect-layers", "-m", "stories260k", "--view", "tree")
    assert b"\x1b" not in done.out_bytes
    assert max(map(len, done.out.splitlines())) > 80


@pytest.mark.parametrize(
    ("args", "steps", "held"),
    [
        ([], "compiled kernels, ", "as stored"),
        (["--kernels", "on"], "compiled kernels, ", "as stored"),
        (["--kernels", "off"], "torch (switched off)", "float32"),
        (["--dtype", "float32"], "compiled kernels, ", "float32"),
        (["--dtype", "bfloat16"], "torch (it computes in bfloat16)", "bfloat16"),
        (["--kernels", "off", "--quantize", "int4"], "torch (switched off)", "int4"),
    ],
)
def test_the_plan_follows_the_choice_of_kernels(
    invoke: Invoke, args: list[str], steps: str, held: str
) -> None:
    preset = ("--preset", "llama-2-7b", "--view", "plan", "--device", "cpu", "--json")
    told = json.loads(invoke("inspect-layers", *preset, *args).out)["plan"]
    assert told["machine"]["steps"].startswith(steps)
    assert told["matrices"] == held
    kernels = told["machine"]["kernels"]
    assert (kernels is None) == (steps == "torch (switched off)")


def test_a_plan_is_refused_as_the_run_would_be(invoke: Invoke) -> None:
    args = ("--preset", "llama-2-7b", "--view", "plan", "--kernels", "on", "--dtype", "bfloat16")
    result = invoke("inspect-layers", *args)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("error: --kernels on cannot be had: it computes in bfloat16")
