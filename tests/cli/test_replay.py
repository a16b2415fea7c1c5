"""--receipt and replay: the same again, the first difference, and receipts that lie."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from llmcli.acquire.places import embedded
from llmcli.engine import receipt_file as receipts
from llmcli.generation.stepper import Stepper
from tests.cli.conftest import Invoke
from tests.cli.drive import Child, Result
from tests.puppet import Added, Puppet, make_puppet

STORY = ["generate", "-m", "stories260k", "Once upon a time, Lily saw a", "-n", "24"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "receipt.json"


def write(invoke: Invoke, file: Path, *args: str) -> dict[str, Any]:
    result = invoke(*(args or STORY), "--receipt", str(file))
    assert (result.code, result.err) == (0, "")
    value: dict[str, Any] = json.loads(file.read_bytes())
    return value


_KEPT: list[bytes] = []


def story(invoke: Invoke, file: Path) -> dict[str, Any]:
    """The receipt of STORY, which is run once for all that only want to change it."""
    if not _KEPT:
        write(invoke, file)
        _KEPT.append(file.read_bytes())
    file.write_bytes(_KEPT[0])
    value: dict[str, Any] = json.loads(_KEPT[0])
    return value


def told(invoke: Invoke, file: Path, *args: str) -> dict[str, Any]:
    result = invoke("replay", str(file), "--json", *args)
    assert result.code in (0, 1), result.err
    value: dict[str, Any] = json.loads(result.out)
    assert value["identical"] == (result.code == 0)
    return value


def changed(file: Path, change: dict[str, Any]) -> Path:
    """The receipt with other values at dotted places."""
    value = json.loads(file.read_bytes())
    for place, new in change.items():
        *parts, last = place.split(".")
        inside = value
        for part in parts:
            inside = inside[part]
        inside[last] = new
    file.write_text(json.dumps(value), "utf-8")
    return file


def refused(result: Result) -> str:
    assert result.code in (1, 2)
    assert result.out == ""
    assert "hint:" in result.err
    assert "Traceback" not in result.err
    return result.err


@pytest.mark.parametrize(
    "args",
    [
        [],
        ["--temperature", "1.2", "--top-k", "30", "--top-p", "0.8"],
        ["--strategy", "beam", "--num-beams", "3", "--length-penalty", "0.5"],
        ["--strategy", "contrastive", "--num-candidates", "3"],
        ["--strategy", "dola", "--temperature", "0.8"],
        ["--strategy", "prompt-lookup", "--min-p", "0.1"],
        ["--mirostat-tau", "3", "--repetition-penalty", "1.2"],
        ["--temperature", "0", "--top-p", "0.9"],
        ["--xtc-probability", "0.5", "--dry-multiplier", "1", "--no-repeat-ngram", "3"],
        ["--stop", "park", "--show-special", "--no-kv-cache"],
        ["--regex", "[a-z ]+"],
        ["--max-context", "20"],
        ["--max-context", "20", "--overflow", "shift", "--cache", "growing"],
        ["--draft-model", "stories260k", "--temperature", "1.1", "--num-draft-tokens", "3"],
        ["--guidance-scale", "1.7", "--negative-prompt", "The dog", "--top-k", "9"],
        ["--logit-bias", " was=-3", "--suppress", " her", "--suppress", "300"],
        ["--strategy", "beam", "--num-return", "2"],
        ["--strategy", "dola", "--dola-layers", "1,2"],
    ],
    ids=" ".join,
)
def test_every_run_can_be_repeated(invoke: Invoke, file: Path, args: list[str]) -> None:
    """Also where no seed was given."""
    receipt = write(invoke, file, *STORY, *args)
    # Where it ran with the cache of the default kind, the flag changes nothing.
    again = [[], ["--kv-cache"]] if not args or "cache" in " ".join(args) else [[]]
    for more in again:
        answer = told(invoke, file, *more)
        assert answer["identical"], answer["difference"]
        assert answer["ids"] == receipt["result"]["ids"]
    assert answer["difference"] is None
    assert answer["logprob_distance"] < 1e-3


def test_what_stands_in_a_receipt(invoke: Invoke, file: Path) -> None:
    args = [*STORY, "--temperature", "0.9"]
    receipt = write(invoke, file, *args)
    assert receipt["llmcli_receipt"] == 1
    assert set(receipt["versions"]) == {"llmcli", "torch", "python", "platform"}
    assert receipt["machine"]["dtype"] == "float32"
    assert receipt["machine"]["cache"] == "growing"
    assert set(receipt["model"]["files"]) >= {
        "config.json", "tokenizer.json", "generation_config.json", "model.safetensors",
    }  # fmt: skip
    folder = embedded("stories260k")
    assert folder is not None
    assert str(folder) not in file.read_text()
    assert receipt["options"]["temperature"] == {"value": 0.9, "source": "flag"}
    assert receipt["options"]["seed"]["source"] == "built-in"
    assert receipt["flags"]["seed"] == receipt["options"]["seed"]["value"]
    plain = json.loads(invoke(*args, "--seed", str(receipt["flags"]["seed"]), "--json").out)
    for key in ("ids", "logprobs", "text", "finish_reason"):
        assert receipt["result"][key] == plain[key]


def test_the_text_and_the_exit_code_are_told(invoke: Invoke, file: Path) -> None:
    write(invoke, file)
    result = invoke("replay", str(file))
    assert (result.code, result.err) == (0, "")
    assert result.out == "identical: 24 new tokens; logprobs differ by at most 0\n"


def test_the_first_difference(invoke: Invoke, file: Path) -> None:
    ids = story(invoke, file)["result"]["ids"]
    changed(file, {"result.ids": [*ids[:5], 100, *ids[6:]]})
    result = invoke("replay", str(file))
    assert result.code == 1
    first, then, now, gap, before = result.out.splitlines()
    assert first == "different at new token 6 of 24"
    assert then.startswith("then: '")
    assert now.startswith("now:  '")
    assert then.split()[1] != now.split()[1]
    assert gap.startswith("top-2 gap after model: ")
    assert before == "before it, logprobs differ by at most 0"
    difference = told(invoke, file)["difference"]
    assert (difference["what"], difference["step"], difference["stage"]) == ("ids", 6, "model")
    assert (difference["then"]["id"], difference["now"]["id"]) == (100, ids[5])
    one, two = difference["top_2"]
    assert one["id"] == ids[5]
    assert difference["top_2_gap"] == pytest.approx(one["logit"] - two["logit"])


@pytest.mark.parametrize("length", [10, 30])
def test_another_length_is_a_difference(invoke: Invoke, file: Path, length: int) -> None:
    result = story(invoke, file)["result"]
    ids, logprobs = result["ids"], result["logprobs"]
    changed(
        file,
        {
            "result.ids": (ids * 2)[:length],
            "result.logprobs": (logprobs * 2)[:length],
        },
    )
    difference = told(invoke, file)["difference"]
    assert difference["step"] == min(length, 24) + 1
    assert (difference["then"] is None, difference["now"] is None) == (length < 24, length > 24)
    assert "the end" in invoke("replay", str(file)).out


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"result.finish_reason": "stop"}, "but finish_reason is length None, then stop None"),
        ({"result.text": "[bold]\x1b"}, "but text is "),
    ],
)
def test_more_than_ids_is_compared(
    invoke: Invoke, file: Path, change: dict[str, Any], expected: str
) -> None:
    story(invoke, file)
    result = invoke("replay", str(changed(file, change)))
    assert result.code == 1
    assert f"all 24 ids are the same, {expected}" in result.out
    assert "\x1b" not in result.out


def test_other_numbers_are_told(invoke: Invoke, file: Path) -> None:
    write(invoke, file, *STORY[:-1], "5")
    changed(file, {"machine.threads": 3})
    answer = told(invoke, file, "--dtype", "bfloat16", "--no-kv-cache", "--threads", "1")
    assert (answer["now"]["dtype"], answer["now"]["cache"]) == ("bfloat16", "none")
    assert (answer["now"]["threads"], answer["then"]["threads"]) == (1, 3)
    assert answer["then"]["dtype"] == "float32"
    assert answer["logprob_distance"] > 1e-4
    err = invoke("replay", str(file), "-v", "--no-kv-cache", "--threads", "1").err
    assert "cache: none (then growing)" in err
    assert "dtype: float32\n" in err


def test_quantised_weights_are_quantised_again(invoke: Invoke, file: Path) -> None:
    receipt = write(invoke, file, *STORY, "--quantize", "int4")
    assert receipt["machine"]["quantize"] == "int4"
    assert receipt["result"]["ids"] != story(invoke, file.with_name("plain"))["result"]["ids"]
    answer = told(invoke, file)
    assert answer["identical"]
    assert answer["now"]["quantize"] == answer["then"]["quantize"] == "int4"
    assert not told(invoke, file, "--quantize", "int8")["identical"]


def test_receipts_of_before_there_was_quantize_are_read(invoke: Invoke, file: Path) -> None:
    receipt = story(invoke, file)
    del receipt["machine"]["quantize"]
    file.write_text(json.dumps(receipt))
    assert told(invoke, file)["identical"]


def chatty(folder: Path) -> Puppet:
    template = "{% for m in messages %}<|u|>{{ m.content }}{% endfor %}<|a|>"
    script = {"<|a|>": ["yes", "\x1b", "界", b"\xff"], "": ["no"]}
    added = [Added("<|u|>"), Added("<|a|>")]
    return make_puppet(folder, script, added=added, chat_template=template)


def test_a_chat_prompt_is_fed_as_ids(invoke: Invoke, file: Path, tmp_path: Path) -> None:
    model = str(chatty(tmp_path / "model").folder)
    receipt = write(invoke, file, "generate", "-m", model, "hi")
    assert receipt["prompt"]["is_chat"]
    assert receipt["result"]["text"] == "yes\x1b界\ufffd"
    assert told(invoke, file, "-m", model)["identical"]


def test_another_template_needs_no_file(invoke: Invoke, file: Path, tmp_path: Path) -> None:
    model = str(chatty(tmp_path / "model").folder)
    other = tmp_path / "other.jinja"
    other.write_text("{{ messages[0].content }}<|u|>")
    receipt = write(invoke, file, "generate", "-m", model, "hi", "--template", str(other))
    assert receipt["result"]["text"] == "no"
    other.unlink()
    assert told(invoke, file, "-m", model)["identical"]


@pytest.mark.parametrize(("count", "ids"), [("0", 0), ("5", 1)])
def test_empty_texts(invoke: Invoke, file: Path, tmp_path: Path, count: str, ids: int) -> None:
    model = str(make_puppet(tmp_path / "model", []).folder)
    receipt = write(invoke, file, "generate", "-m", model, "hi", "-n", count)
    assert receipt["result"]["text"] == ""
    assert len(receipt["result"]["ids"]) == ids
    result = invoke("replay", str(file), "-m", model)
    assert result.out == f"identical: {ids} new tokens; logprobs differ by at most 0\n"


def test_another_checkpoint_is_refused_by_file(invoke: Invoke, file: Path, tmp_path: Path) -> None:
    model = make_puppet(tmp_path / "model", ["a", "b"]).folder
    write(invoke, file, "generate", "-m", str(model), "hi")
    other = tmp_path / "copy"
    shutil.copytree(model, other)
    config = json.loads((other / "tokenizer_config.json").read_text())
    (other / "tokenizer_config.json").write_text(json.dumps({**config, "x": 1}))
    (other / "generation_config.json").unlink()
    (other / "merges.txt").write_text("")
    (other / "model.safetensors").unlink()
    weights = make_puppet(tmp_path / "third", ["a", "b"], scale=-1.0).folder / "model.safetensors"
    shutil.copy(weights, other)
    err = refused(invoke("replay", str(file), "-m", str(other)))
    assert "copy is not the checkpoint of the receipt" in err
    assert "merges.txt was not there" in err
    assert "generation_config.json is not there any more" in err
    assert "model.safetensors has sha256 " in err
    assert "tokenizer_config.json has sha256 " in err
    assert "config.json has" not in err.replace("tokenizer_config.json has", "")
    result = invoke("replay", str(file), "-m", str(other), "--force")
    assert result.code == 1
    assert result.err.count("warning: ") == 4
    assert "different at new token 1 of 3" in result.out
    answer = json.loads(invoke("replay", str(file), "-m", str(other), "--force", "--json").out)
    assert len(answer["changed_files"]) == 4


@pytest.mark.parametrize("name", ["../model", "/etc", "a/b/c", "..", "", "x\x1b", "~", "a b"])
def test_a_name_in_a_receipt_is_never_a_path(invoke: Invoke, file: Path, name: str) -> None:
    story(invoke, file)
    err = refused(invoke("replay", str(changed(file, {"model.name": name}))))
    assert "which is no name to look up" in err
    assert "--model FOLDER" in err
    assert "\x1b" not in err


def test_a_draft_is_held_against_its_receipt_too(
    invoke: Invoke, file: Path, tmp_path: Path
) -> None:
    own = embedded("stories260k")
    assert own is not None
    draft = tmp_path / "draft"
    shutil.copytree(own, draft)
    receipt = write(invoke, file, *STORY, "--draft-model", str(draft))
    assert receipt["flags"]["draft_model"] == receipt["draft"]["name"] == "draft"
    assert str(tmp_path) not in file.read_text()
    assert "the receipt's model draft is not on this machine" in refused(
        invoke("replay", str(file))
    )
    assert told(invoke, file, "--draft-model", str(draft))["identical"]
    (draft / "generation_config.json").write_text("{}")
    err = refused(invoke("replay", str(file), "--draft-model", str(draft)))
    assert "generation_config.json has sha256" in err
    assert "the right one with --draft-model" in err
    answer = json.loads(
        invoke("replay", str(file), "--draft-model", str(draft), "--force", "--json").out
    )
    assert answer["identical"]
    assert answer["changed_files"][0].startswith("draft: generation_config.json has")


def test_a_draft_that_the_run_had_not_is_refused(invoke: Invoke, file: Path) -> None:
    story(invoke, file)
    result = invoke("replay", str(file), "--draft-model", "stories260k")
    assert "the receipt's run had no draft model" in refused(result)


def test_a_model_is_never_fetched_for_a_receipt(invoke: Invoke, file: Path) -> None:
    story(invoke, file)
    err = refused(invoke("replay", str(changed(file, {"model.name": "someone/something"}))))
    assert "the receipt's model someone/something is not on this machine" in err


DEEP = b'{"llmcli_receipt": ' + b"[" * 100_000


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "it is no JSON"),
        (b"\xff\xfe", "it is no JSON"),
        (b"[]", "it holds no llmcli_receipt"),
        (b"{}", "it holds no llmcli_receipt"),
        (b'{"llmcli_receipt": 2}', "its llmcli_receipt is 2; this llmcli reads 1"),
        (b'{"llmcli_receipt": true}', "its llmcli_receipt is True"),
        (b'{"llmcli_receipt": 1}', "versions is missing"),
        (b'{"llmcli_receipt": 1, "x": 1}', "x is not known"),
        (b'{"llmcli_receipt": 1, "llmcli_receipt": 1}', "it gives a key twice"),
        (b'{"llmcli_receipt": NaN}', "it holds NaN, which is no JSON"),
        (DEEP, "it is no JSON"),
        (b'{"llmcli_receipt": ' + b"1" * 5000 + b"}", "no JSON"),
    ],
    ids=range(12),
)
def test_what_is_no_receipt(invoke: Invoke, file: Path, data: bytes, message: str) -> None:
    file.write_bytes(data)
    err = refused(invoke("replay", str(file)))
    assert "receipt.json is no receipt that can be replayed: " in err
    assert message in err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"machine.device": "cpu; rm"}, "machine.device is 'cpu; rm'"),
        ({"machine.threads": 0}, "machine.threads is 0"),
        ({"machine.threads": 10**9}, "machine.threads is 1000000000"),
        ({"machine.dtype": "int8"}, "machine.dtype is 'int8'"),
        ({"machine.cache": "auto"}, "machine.cache is 'auto'"),
        ({"prompt.ids": []}, "prompt.ids is empty"),
        ({"prompt.ids": [-1]}, "prompt.ids holds -1"),
        ({"prompt.ids": [1.0]}, "prompt.ids[0] is 1.0; it must be a whole number"),
        ({"prompt.ids": [10**6]}, "prompt.ids holds 1000000; this model has ids up to 511"),
        ({"prompt.ids": [5] * 600}, "prompt has 600 tokens; the context holds 512"),
        ({"result.ids": [1]}, "result.ids has 1 entries, result.logprobs 24"),
        ({"result.finish_reason": "interrupted"}, "result.finish_reason is 'interrupted'"),
        ({"ending.stop_strings": [""]}, "ending.stop_strings holds an empty text"),
        ({"ending.stop_ids": ["x"]}, "ending.stop_ids[0] is 'x'"),
        ({"flags.temperature": "hot"}, "flags.temperature is 'hot'"),
        ({"flags.temperature": -1.0}, "temperature is -1; it must be at least 0"),
        ({"flags.top_p": 0.5}, "strategy greedy (flag) does not read --top-p"),
        ({"ending.max_context": 0}, "max-context is 0"),
        ({"ending.overflow": "x"}, "ending.overflow is 'x'"),
        ({"flags.evil": 1}, "flags.evil is not known"),
        ({"flags.max_new_tokens": -4}, "max-new-tokens is -4"),
        ({"model.files": {"../x": {"sha256": "z", "bytes": 1}}}, "sha256 is no SHA-256"),
        ({"negative_ids": [1]}, "negative_ids and flags contradict each other"),
        ({"draft": {"name": "x", "files": {}}}, "draft and flags contradict each other"),
        ({"model.files": {"../x": {"sha256": "a" * 64, "bytes": 1}}}, "../x is not there"),
        ({"grammar": {"kind": "regex", "name": "x", "engine_text": "\x00"}}, "grammar's engine"),
    ],
    ids=str,
)
def test_bad_values_are_named(
    invoke: Invoke, file: Path, change: dict[str, Any], message: str
) -> None:
    story(invoke, file)
    assert message in refused(invoke("replay", str(changed(file, change))))


def test_a_huge_file_is_not_read(
    invoke: Invoke, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    story(invoke, file)
    monkeypatch.setattr(receipts, "MOST_BYTES", 100)
    assert "it has more than 100 bytes" in refused(invoke("replay", str(file)))


def test_no_file(invoke: Invoke, tmp_path: Path) -> None:
    assert "nowhere cannot be read: No such file" in refused(invoke("replay", "nowhere"))
    assert "cannot be read: Is a directory" in refused(invoke("replay", str(tmp_path)))


def test_where_no_receipt_can_go(invoke: Invoke, tmp_path: Path) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("mine")
    for target, message in (
        (tmp_path / "no" / "x", "there is no folder"),
        (tmp_path, "is a folder"),
        (notes, "is there, and it is no receipt"),
    ):
        assert message in refused(invoke(*STORY, "--receipt", str(target)))
    assert notes.read_text() == "mine"


def test_a_receipt_may_be_written_over(invoke: Invoke, file: Path) -> None:
    write(invoke, file)
    assert len(write(invoke, file, *STORY[:-1], "3")["result"]["ids"]) == 3
    assert [path.name for path in file.parent.glob("*receipt*")] == [file.name]


def test_whole_or_not_at_all(invoke: Invoke, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = write(invoke, file)

    def full(_number: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    result = invoke(*STORY[:-1], "3", "--receipt", str(file))
    assert result.code == 1
    assert "receipt.json cannot be written: No space left on device" in result.err
    assert json.loads(file.read_bytes()) == before
    assert [path.name for path in file.parent.glob("*receipt*")] == [file.name]


def _stumble() -> None:
    """Ctrl-C at the fifth token."""
    import signal

    feed, seen = Stepper.feed, 0

    def counted(self: Stepper, new: Any) -> Any:
        nonlocal seen
        seen += 1
        if seen == 5:
            os.kill(os.getpid(), signal.SIGINT)
        return feed(self, new)

    Stepper.feed = counted  # type: ignore[method-assign]


def test_an_interrupted_run_leaves_no_receipt(file: Path) -> None:
    args = [*STORY, "--receipt", str(file)]
    with Child(args, stdout="pipe", stderr="pipe", setup=_stumble) as child:
        assert child.wait() == 130
    assert child.err == b"interrupted: no receipt is written\n"
    assert not file.exists()


@pytest.mark.parametrize("many", [["--compare", "greedy,beam"], ["--num-samples", "2"]])
def test_several_texts_have_no_receipt(invoke: Invoke, file: Path, many: list[str]) -> None:
    result = invoke(*STORY, *many, "--receipt", str(file))
    assert f"{many[0]} does not read --receipt" in refused(result)
    assert not file.exists()
