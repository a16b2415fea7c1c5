"""generate --prompts and --num-samples from the command line: records, refusals, samples."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Invoke
from tests.cli.drive import Result
from tests.puppet import make_puppet

STORIES = ["generate", "-m", "stories260k"]
MODEL = ["generate", "-m", "nowhere/at-all"]  # what is refused in time never looks for it


def _records(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.out.splitlines()]


def _file(text: str, name: str = "prompts.txt") -> str:
    Path(name).write_bytes(text.encode())
    return name


# records


@pytest.mark.parametrize("options", [[], ["-t", "1.1", "--seed", "40"]], ids=["greedy", "sample"])
def test_each_record_tells_what_a_single_run_tells(invoke: Invoke, options: list[str]) -> None:
    prompts = ["Once upon a time, there was a big dog", "", "Lily", "One day, Tom"]
    # A form feed and a line separator do not end a line; one final newline is no prompt.
    prompts.append("Tim\x0csaw\u2028it")
    how = ["-n", "12", "--stop", "ed", *options]
    result = invoke(*STORIES, "--prompts", _file("\r\n".join(prompts) + "\n"), *how)
    assert result.code == 0, result.err
    records = _records(result)
    assert sorted(record["index"] for record in records) == [*range(5)]
    for record in records:
        assert record["prompt"] == prompts[record["index"]]
        seed = ["--seed", str(40 + record["index"])] if options else []
        alone = json.loads(invoke(*STORIES, record["prompt"], "--json", *how, *seed).out)
        for name in ("text", "ids", "finish_reason", "stop_string"):
            assert record[name] == alone[name]
        assert record["prompt_tokens"] == len(alone["prompt_ids"])
        assert record["new_tokens"] == len(alone["ids"])
        assert record["seed"] == (40 + record["index"] if options else None)
        assert (record["id"], record["error"]) == (None, None)


def test_lines_of_json_say_more(invoke: Invoke) -> None:
    lines = [
        {"prompt": "Once", "id": "first", "seed": 5},
        {"prompt": "Once", "id": 2, "seed": 5, "max_new_tokens": 3},
        {"prompt": "Once", "id": None},
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    result = invoke(*STORIES, "--prompts", "-", "--prompts-format", "jsonl", "-n", "6",
                    "-t", "1", "--seed", "90", stdin=text.encode())  # fmt: skip
    first, short, last = sorted(_records(result), key=lambda record: record["index"])
    assert (first["id"], first["seed"], first["new_tokens"]) == ("first", 5, 6)
    assert (short["id"], short["ids"]) == (2, first["ids"][:3])
    assert (last["id"], last["seed"]) == (None, 92)
    # What finishes first comes first.
    assert [record["index"] for record in _records(result)] == [1, 0, 2]


def test_the_system_message_of_a_line(invoke: Invoke, tmp_path: Path) -> None:
    template = "{% for m in messages %}{{ m.role[0] }}{{ m.content }};{% endfor %}"
    model = str(make_puppet(tmp_path / "model", ["ok"], chat_template=template).folder)
    lines = '{"prompt": "hi", "system": "be brief"}\n{"prompt": "hi"}\n{"prompt": ""}\n'
    path = _file(lines, "p.jsonl")
    records = _records(invoke("generate", "-m", model, "--prompts", path, "--system", "no"))
    lengths = {record["index"]: record["prompt_tokens"] for record in records}
    assert lengths[0] - lengths[1] == len("be brief") - len("no")
    assert lengths[1] - lengths[2] == len("hi")
    assert {record["text"] for record in records} == {"ok"}
    result = invoke("generate", "-m", model, "--prompts", path, "--raw")
    assert (result.code, result.out) == (2, "")
    assert "line 1: --system needs a chat template" in result.err


def test_a_row_without_a_prompt_keeps_its_place(invoke: Invoke) -> None:
    how = ["--no-bos", "-n", "4"]
    result = invoke(*STORIES, "--prompts", _file("Once\n\nThe dog\n" + "x" * 2000), *how)
    assert result.code == 1
    by_index = {record["index"]: record for record in _records(result)}
    assert "the prompt is empty" in by_index[1]["error"]
    assert "the context holds 512" in by_index[3]["error"]
    assert [by_index[at]["error"] for at in (0, 2)] == [None, None]
    assert [by_index[at]["new_tokens"] for at in range(4)] == [4, 0, 4, 0]
    (line,) = [line for line in result.err.splitlines() if line.startswith("error:")]
    assert line.startswith("error: 2 of 4 answers failed; the first is that of prompt 1: the pro")


def test_verbose_tells_batches_and_bytes(invoke: Invoke) -> None:
    result = invoke(*STORIES, "--prompts", _file("Once\nOnce upon a time\nLily"), "-v",
                    "-n", "4", "--batch-size", "3")  # fmt: skip
    assert "rows: 3 in 1 batch of at most 3" in result.err
    assert "1 run, 9 prompt tokens and 40% padding, 12 new tokens" in result.err
    assert "largest cache of a batch: 1.0 MB" in result.err
    result = invoke(*STORIES, "--prompts", "prompts.txt", "-v", "-n", "2", "--strategy", "beam")
    assert "batches: strategy beam, as asked for, runs row by row" in result.err


def test_a_bar_counts_answers_where_no_records_show(invoke: Invoke) -> None:
    args = [*STORIES, "--prompts", _file("Once\nOnce upon a time\nLily"), "-n", "4"]
    assert "3/3" in invoke(*args, errors_terminal=True).err
    assert "answers" not in invoke(*args).err
    both = invoke(*args, terminal=True, errors_terminal=True)
    assert "3/3" not in both.err


# refusals


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("not json", "line 2: not valid JSON"),
        ("", "line 2: not valid JSON"),
        ("[1]", "line 2: list, not an object"),
        ("{}", "line 2: there is no `prompt`"),
        ('{"prompt": 7}', "line 2: `prompt` is 7; it must be text"),
        (r'{"prompt": "\ud800"}', "line 2: `prompt` is"),
        ('{"prompt": "a", "prompt": "b"}', "line 2: 'prompt' is there twice"),
        ('{"prompt": "a", "max_tokens": 3}', "line 2: 'max_tokens' is not one of prompt, id"),
        ('{"prompt": "a", "seed": -1}', "line 2: `seed` is -1; it must be a whole number"),
        ('{"prompt": "a", "seed": true}', "line 2: `seed` is true"),
        ('{"prompt": "a", "seed": 9223372036854775808}', "line 2: `seed` is 92233720"),
        ('{"prompt": "a", "max_new_tokens": 1.5}', "line 2: `max_new_tokens` is 1.5"),
        ('{"prompt": "a", "id": [1]}', "line 2: `id` is [1]; it must be text or a whole number"),
        ('{"prompt": "a", "system": 1}', "line 2: `system` is 1; it must be text"),
    ],
)
def test_a_bad_line_is_named_before_anything_runs(invoke: Invoke, line: str, what: str) -> None:
    path = _file('{"prompt": "fine"}\n' + line + "\n", "p.jsonl")
    result = invoke(*MODEL, "--prompts", path, "--output", "out.jsonl")
    assert (result.code, result.out) == (2, "")
    assert f"--prompts p.jsonl, {what}" in result.err
    assert not Path("out.jsonl").exists()


@pytest.mark.parametrize(
    ("args", "what"),
    [
        (["--prompts", "p.txt", "hello"], "--prompts does not read a prompt"),
        (["--prompts", "p.txt", "--file", "p.txt"], "--prompts does not read --file"),
        (["--prompts", "p.txt", "--json"], "--prompts does not read --json"),
        (["--prompts", "p.txt", "--echo"], "--prompts does not read --echo"),
        (["--prompts", "p.txt", "--raw-output"], "--prompts does not read --raw-output"),
        (["--prompts", "p.txt", "--logprobs", "0"], "--prompts does not read --logprobs"),
        (["--num-samples", "2", "hi", "--logprobs", "0"], "--num-samples does not read --logp"),
        (["--num-samples", "2", "hi", "--echo"], "--num-samples does not read --echo"),
        (["--num-samples", "2", "hi", "--explain"], "--num-samples does not read --explain"),
        (["--prompts", "p.txt", "--compare", "greedy"], "--prompts does not read --compare"),
        (["--prompts", "p.txt", "--strategy", "beam", "--num-return", "2"], "--prompts does not r"),
        (["--num-samples", "0", "hi"], "--num-samples is 0; it must be at least 1"),
        (["--prompts", "p.txt", "--batch-size", "0"], "--batch-size is 0; it must be at least"),
        (["hi", "--batch-size", "4"], "--batch-size has no effect on one answer"),
        (["hi", "--output", "o"], "--output has no effect without --prompts"),
        (["hi", "--num-samples", "2", "--output", "o"], "--output has no effect without --prom"),
        (["hi", "--prompts-format", "text"], "--prompts-format has no effect without --prompts"),
        (["--prompts", "p.txt", "--resume"], "--resume has no effect without --output"),
        (["--prompts", "p.txt", "--overwrite"], "--overwrite has no effect without --output"),
        (["--prompts", "p.txt", "--output", "o", "--resume", "--overwrite"], "--resume contrad"),
        (["--prompts", "p.txt", "--output", "no/o"], "--output no/o: there is no folder no"),
        (["--prompts", "p.txt", "--output", "."], "--output . is not a file"),
        (["--prompts", "p.txt", "--output", "p.txt"], "--output p.txt is the file of the pro"),
        (["--prompts", "p.txt", "--output", "kept"], "--output kept exists already"),
        (["--prompts", "none.txt"], "--prompts none.txt cannot be read"),
        (["--prompts", "empty"], "--prompts empty is empty"),
        (["--prompts", "latin"], "--prompts latin is not UTF-8: byte 0xe9 at offset 1"),
        (["--prompts", "p.txt", "--prompts-format", "csv"], "--prompts-format is 'csv'; it must"),
    ],
)
def test_what_contradicts_itself(invoke: Invoke, args: list[str], what: str) -> None:
    for name, data in (("p.txt", b"hi\n"), ("kept", b"x"), ("empty", b""), ("latin", b"h\xe9")):
        Path(name).write_bytes(data)
    result = invoke(*MODEL, *args)
    assert (result.code, result.out) == (2, "")
    assert f"error: {what}" in result.err
    assert "hint:" in result.err
    assert Path("kept").read_bytes() == b"x"


def test_a_seed_that_nothing_reads(invoke: Invoke) -> None:
    path = _file('{"prompt": "a"}\n{"prompt": "b", "seed": 1}\n', "p.jsonl")
    result = invoke(*STORIES, "--prompts", path)
    assert (result.code, result.out) == (2, "")
    assert "line 2 gives a seed, which strategy greedy does not read" in result.err


# samples

SAMPLES = [*STORIES, "Once upon a time", "-n", "10", "-t", "1.2", "--seed", "30"]


def test_samples_as_text_and_as_a_list(invoke: Invoke) -> None:
    alone = [json.loads(invoke(*SAMPLES, "--seed", str(30 + at), "--json").out) for at in range(3)]
    text = "\n".join(
        f"[sample {at + 1} of 3, seed {30 + at}]\n{one['text']}\n" for at, one in enumerate(alone)
    )
    assert invoke(*SAMPLES, "--num-samples", "3").out == text
    told = json.loads(invoke(*SAMPLES, "--num-samples", "3", "--json", "--batch-size", "2").out)
    assert [one["sample"] for one in told] == [0, 1, 2]
    for one, other in zip(told, alone, strict=True):
        assert (one["ids"], one["text"]) == (other["ids"], other["text"])
        assert one["seed"] == other["options"]["seed"]["value"]


def test_samples_of_every_prompt(invoke: Invoke) -> None:
    path = _file("Once upon a time\nLily")
    how = ["-n", "8", "-t", "1.2", "--seed", "30", "--num-samples"]
    records = _records(invoke(*STORIES, "--prompts", path, *how, "3", "--batch-size", "4"))
    places = sorted((one["index"], one["sample"], one["seed"]) for one in records)
    assert places == [(i, j, 30 + i + j) for i in range(2) for j in range(3)]
    fewer = _records(invoke(*STORIES, "--prompts", path, *how, "1"))
    assert all(one in records for one in fewer)


@pytest.mark.parametrize("how", [[], ["--strategy", "beam"], ["-t", "0"]], ids=str)
def test_what_always_says_the_same_has_no_samples(invoke: Invoke, how: list[str]) -> None:
    result = invoke(*STORIES, "hi", "--num-samples", "2", *how)
    assert (result.code, result.out) == (2, "")
    assert "--num-samples needs sampling" in result.err


@pytest.mark.parametrize("how", [[], ["--json"]], ids=str)
def test_samples_of_no_prompt_are_one_error(invoke: Invoke, how: list[str]) -> None:
    alone = invoke(*STORIES, "", "--no-bos", "-t", "1", *how)
    result = invoke(*STORIES, "", "--no-bos", "-t", "1", "--num-samples", "2", *how)
    assert (result.code, result.out, result.err) == (alone.code, "", alone.err)
    assert "the prompt is empty" in result.err


def test_seeds_do_not_run_over(invoke: Invoke) -> None:
    high = ["-t", "1", "--seed", str(2**63 - 2), "-n", "1"]
    assert invoke(*STORIES, "hi", "--num-samples", "2", *high).code == 0
    result = invoke(*STORIES, "hi", "--num-samples", "3", *high)
    assert (result.code, result.out) == (2, "")
    assert "leaves no seed for sample 2" in result.err
