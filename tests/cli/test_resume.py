"""--output and --resume: whatever ends the run, no finished answer is lost, and none repeated."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.cli import pauses
from tests.cli.conftest import Invoke
from tests.cli.drive import Child

OUT = Path("out.jsonl")
STORIES = Path(__file__).parents[2] / "weights" / "stories260k"
ARGS = ["generate", "-m", "stories260k", "--prompts", "p.jsonl", "--output", str(OUT),
        "--batch-size", "4", "-t", "1.1", "--seed", "3"]  # fmt: skip


@pytest.fixture(autouse=True)
def prompts() -> None:
    """Answers that end after two to five tokens."""
    texts = [("Once upon", 2), ("Lily", 5), ("The dog", 3), ("Tom", 3), ("One", 4), ("", 2)]
    lines = [json.dumps({"prompt": text, "max_new_tokens": new}) for text, new in texts]
    Path("p.jsonl").write_text("\n".join(lines))


@pytest.fixture
def whole(invoke: Invoke) -> bytes:
    """What an uninterrupted run writes."""
    result = invoke(*ARGS)
    assert (result.code, result.out) == (0, ""), result.err
    data = OUT.read_bytes()
    OUT.unlink()
    return data


def _lines(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in data.split(b"\n")[:-1]]


def test_the_first_record_says_what_made_the_file(whole: bytes) -> None:
    first, *rest = _lines(whole)
    assert first["run"]["sampling"]["temperature"] == 1.1
    assert first["run"]["seed"] == 3
    assert not any("run" in record for record in rest)
    assert sorted(record["index"] for record in (first, *rest)) == [*range(6)]


def test_cut_anywhere_it_goes_on_to_the_same_bytes(invoke: Invoke, whole: bytes) -> None:
    ends = [at for at, byte in enumerate(whole, start=1) if byte == ord("\n")]
    for cut in (0, 9, ends[0], ends[1] + 30, ends[3] - 1, ends[3], ends[-1]):
        OUT.write_bytes(whole[:cut])
        result = invoke(*ARGS, "--resume", "-v")
        assert result.code == 0, result.err
        assert OUT.read_bytes() == whole
        done = sum(end <= cut for end in ends)
        assert (f"rows: 6 ({done} done before)" in result.err) == (done > 0)


def test_without_a_file_resume_begins(invoke: Invoke, whole: bytes) -> None:
    assert invoke(*ARGS, "--resume").code == 0
    assert OUT.read_bytes() == whole


def test_overwrite_begins_anew(invoke: Invoke, whole: bytes) -> None:
    OUT.write_bytes(b"something else\n")
    assert invoke(*ARGS, "--overwrite").code == 0
    assert OUT.read_bytes() == whole


def test_a_seed_that_was_drawn_is_kept(invoke: Invoke) -> None:
    args = ARGS[:-2]
    assert invoke(*args).code == 0
    whole = OUT.read_bytes()
    OUT.write_bytes(whole[: whole.index(b"\n") + 1])
    assert invoke(*args, "--resume").code == 0
    assert OUT.read_bytes() == whole


def _until_paused(child: Child) -> None:
    child.wait_for(b"PAUSED")
    # Two of the first batch end with their second token, before the fourth.
    assert len(_lines(OUT.read_bytes())) == 2


def test_killed_in_the_middle(invoke: Invoke, whole: bytes) -> None:
    with Child(ARGS, setup=pauses.before_the_fourth_token) as child:
        _until_paused(child)
        child.kill()
        assert child.wait() == -9
    assert whole.startswith(OUT.read_bytes())
    assert invoke(*ARGS, "--resume").code == 0
    assert OUT.read_bytes() == whole


def test_interrupted_in_the_middle(invoke: Invoke, whole: bytes) -> None:
    with Child(ARGS, stdout="pipe", setup=pauses.before_the_fourth_token) as child:
        _until_paused(child)
        child.type(b"\x03")
        assert (child.wait(), child.out) == (130, b"")
        assert b"interrupted: 2 of 6 answers are complete" in child.seen
        assert b"--resume goes on from here" in child.seen
        assert b"Traceback" not in child.seen
        assert child.terminal_restored
    assert whole.startswith(OUT.read_bytes())
    assert invoke(*ARGS, "--resume").code == 0
    assert OUT.read_bytes() == whole


def test_interrupted_on_standard_output(whole: bytes) -> None:
    args = [arg for arg in ARGS if arg not in ("--output", str(OUT))]
    with Child(args, stdout="pipe", setup=pauses.before_the_fourth_token) as child:
        child.wait_for(b"PAUSED")
        child.type(b"\x03")
        assert child.wait() == 130
        expected = _lines(whole)[:2]
        del expected[0]["run"]
        assert _lines(child.out) == expected


def test_samples_that_were_complete_are_shown() -> None:
    args = ["generate", "-m", "stories260k", "Once", "-n", "2", "-t", "1", "--num-samples", "2",
            "--batch-size", "1", "--seed", "4"]  # fmt: skip
    with Child(args, stdout="pipe", setup=pauses.before_the_fourth_token) as child:
        child.wait_for(b"PAUSED")
        child.type(b"\x03")
        assert child.wait() == 130
        assert child.out.startswith(b"[sample 1 of 2, seed 4]\n")
        assert b"sample 2" not in child.out


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (["-t", "0.9"], "temperature 1.1, and now it is 0.9"),
        (["--seed", "4"], "seed 3, and now it is 4"),
        (["--top-k", "7"], "top k 0, and now it is 7"),
        (["--stop", "x"], 'stop [], and now it is ["x"]'),
        (["-n", "9"], "max new tokens 256, and now it is 9"),
        (["--strategy", "dola"], 'strategy "sample", and now it is "dola"'),
        (["--num-samples", "2"], "samples null, and now it is 2"),
        (["--ignore-eos"], "ignore eos false, and now it is true"),
        (["--no-bos"], "prompt ids "),
        (["--cache", "quantized-8"], 'cache "exact", and now it is "quantized-8"'),
        (["--dtype", "bfloat16"], 'dtype "float32", and now it is "bfloat16"'),
    ],
    ids=str,
)
def test_another_run_is_refused_by_name(
    invoke: Invoke, whole: bytes, change: list[str], named: str
) -> None:
    cut = whole[: whole.index(b"\n") + 1]
    OUT.write_bytes(cut)
    result = invoke(*ARGS, "--resume", *change)
    assert (result.code, result.out) == (2, "")
    assert f"--resume: out.jsonl was made with {named}" in result.err
    assert OUT.read_bytes() == cut


def test_one_other_byte_of_the_weights_is_another_model(invoke: Invoke) -> None:
    model = Path(shutil.copytree(STORIES, "model"))
    args = ["generate", "-m", str(model), *ARGS[3:]]
    assert invoke(*args).code == 0
    before = OUT.read_bytes()
    weights = next(model.glob("*.safetensors"))
    data = bytearray(weights.read_bytes())
    data[len(data) // 2 + 12_345] ^= 1
    weights.write_bytes(data)
    result = invoke(*args, "--resume")
    assert result.code == 2
    assert "model" in result.err
    assert OUT.read_bytes() == before


def test_other_prompts_are_refused(invoke: Invoke, whole: bytes) -> None:
    OUT.write_bytes(whole)
    prompts = Path("p.jsonl")
    prompts.write_text(prompts.read_text().replace("Tom", "Tim"))
    result = invoke(*ARGS, "--resume")
    assert result.code == 2
    assert "was made with prompts " in result.err
    assert OUT.read_bytes() == whole


@pytest.mark.parametrize(
    ("damage", "what"),
    [
        (lambda data: b"{}\n" + data, "line 1 of out.jsonl has no `index`"),
        (lambda data: data[:40] + b"\n" + data, "line 1 of out.jsonl is not valid JSON"),
        (lambda data: data.split(b"\n", 1)[1], "line 1 of out.jsonl has no `run`"),
        (lambda data: data + data.split(b"\n")[1] + b"\n", "line 7 of the output is a record that"),
        (
            lambda data: data + b'{"index": 6, "error": null}\n',
            "line 7 of the output is a record of no prompt",
        ),
    ],
)
def test_a_file_that_is_not_ours(invoke: Invoke, whole: bytes, damage: Any, what: str) -> None:
    OUT.write_bytes(damage(whole))
    before = OUT.read_bytes()
    result = invoke(*ARGS, "--resume")
    assert result.code == 2
    assert f"--resume: {what}" in result.err
    assert OUT.read_bytes() == before


def test_failures_of_the_first_run_still_count(invoke: Invoke) -> None:
    args = [*ARGS, "--no-bos"]
    first = invoke(*args)
    assert first.code == 1
    whole = OUT.read_bytes()
    OUT.write_bytes(whole[: whole.index(b"\n") + 1])
    again = invoke(*args, "--resume")
    assert (again.code, again.err) == (1, first.err)
    assert OUT.read_bytes() == whole
