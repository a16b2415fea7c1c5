"""What ends an answer, and answers of no tokens at all (C4, G10)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Invoke
from tests.puppet import Added, Puppet, make_puppet

ENDS = ("<e1>", "<e2>", "<e3>")
MISSING = object()


def ending_puppet(folder: Path, said: str, **how: Any) -> Puppet:
    """Says "a", one of the three candidates, "b". No source names any of them yet."""
    return make_puppet(
        folder / "model",
        ["a", said, "b"],
        ends=False,
        eos=[],
        added=[Added(name) for name in ENDS],
        **how,
    )


def generate(invoke: Invoke, puppet: Puppet, *args: str, **how: Any) -> dict[str, Any]:
    result = invoke("generate", "-m", str(puppet.folder), "hi", "-n", "3", "--json", *args, **how)
    assert result.code == 0, result.err
    told: dict[str, Any] = json.loads(result.out)
    return told


def set_eos(puppet: Puppet, name: str, value: object) -> None:
    path = puppet.folder / name
    settings = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    settings.pop("eos_token_id", None)
    if value is not MISSING:
        settings["eos_token_id"] = value
    path.write_text(json.dumps(settings), encoding="utf-8")


@pytest.mark.parametrize("said", ENDS)
def test_all_sources_count(invoke: Invoke, tmp_path: Path, said: str) -> None:
    puppet = ending_puppet(tmp_path, said, tokenizer_config={"eos_token": "<e3>"})
    first, second, third = (puppet.added[name] for name in ENDS)
    set_eos(puppet, "config.json", first)
    set_eos(puppet, "generation_config.json", [first, second])
    told = generate(invoke, puppet)
    assert (told["text"], told["finish_reason"]) == ("a", "stop")
    assert told["ids"][-1] == puppet.added[said]
    assert told["options"]["stop_ids"]["source"] == {
        str(first): ["generation_config.json", "config.json"],
        str(second): ["generation_config.json"],
        str(third): ["tokenizer eos_token"],
    }
    ignored = generate(invoke, puppet, "--ignore-eos")
    # Even then the end token itself is not shown.
    assert (ignored["text"], ignored["finish_reason"]) == ("ab", "length")
    verbose = invoke("generate", "-m", str(puppet.folder), "hi", "-v").err
    assert f"{first} '<e1>' (generation_config.json + config.json)" in verbose
    assert f"{third} '<e3>' (tokenizer eos_token)" in verbose


@pytest.mark.parametrize(
    ("in_config", "in_generation", "ends"),
    [
        (0, MISSING, True),
        ([0], MISSING, True),
        (None, 0, True),
        (MISSING, [0], True),
        (None, None, False),
        (MISSING, MISSING, False),
        ([], [], False),
        (-1, MISSING, False),
    ],
)
def test_forms_of_an_end(
    invoke: Invoke, tmp_path: Path, in_config: Any, in_generation: Any, ends: bool
) -> None:
    puppet = ending_puppet(tmp_path, "<e1>")

    def real(value: Any) -> Any:
        first = puppet.added["<e1>"]
        return [first] if value == [0] else first if value == 0 else value

    set_eos(puppet, "config.json", real(in_config))
    set_eos(puppet, "generation_config.json", real(in_generation))
    told = generate(invoke, puppet)
    assert told["finish_reason"] == ("stop" if ends else "length")
    assert told["text"] == ("a" if ends else "ab")


def test_without_generation_config(invoke: Invoke, tmp_path: Path) -> None:
    puppet = ending_puppet(tmp_path, "<e1>")
    (puppet.folder / "generation_config.json").unlink()
    set_eos(puppet, "config.json", puppet.added["<e1>"])
    assert generate(invoke, puppet)["finish_reason"] == "stop"


def test_an_end_of_the_wrong_kind_is_refused(invoke: Invoke, tmp_path: Path) -> None:
    puppet = ending_puppet(tmp_path, "<e1>")
    set_eos(puppet, "config.json", "</s>")
    result = invoke("generate", "-m", str(puppet.folder), "hi")
    assert result.code == 1
    assert result.err.startswith("error: config.json: eos_token_id is '</s>', needed an integer")


@pytest.mark.parametrize(
    ("size", "reason", "text"), [(4, "context", "ab"), (5, "length", "aba"), (99, "length", "aba")]
)
def test_context_or_length(
    invoke: Invoke, tmp_path: Path, size: int, reason: str, text: str
) -> None:
    puppet = make_puppet(tmp_path / "model", ["a", "b"], ends=False, max_positions=size)
    told = generate(invoke, puppet)
    assert (told["finish_reason"], told["text"]) == (reason, text)


def test_prompt_longer_than_the_context(invoke: Invoke, tmp_path: Path) -> None:
    puppet = make_puppet(tmp_path / "model", ["a"], max_positions=8)
    result = invoke("generate", "-m", str(puppet.folder), "x" * 20)
    assert result.code == 1
    assert "the prompt has 20 tokens; the context holds 8" in result.err
    assert "hint: shorten the prompt by at least 13 tokens\n" in result.err
    fits = invoke("generate", "-m", str(puppet.folder), "x" * 7)
    assert (fits.code, fits.out) == (0, "a\n")


@pytest.mark.parametrize("prompt", ["", " ", "\n"])
@pytest.mark.parametrize("bos", ["<s>", None])
def test_empty_prompts(invoke: Invoke, tmp_path: Path, prompt: str, bos: str | None) -> None:
    puppet = make_puppet(tmp_path / "model", ["ok"], bos=bos)
    result = invoke("generate", "-m", str(puppet.folder), prompt, "-v")
    if bos is None and not prompt:
        assert result.code == 1
        assert result.err.startswith("error: the prompt is empty, and")
        assert len(result.err.splitlines()) == 3
    else:
        assert (result.code, result.out) == (0, "ok\n")


@pytest.mark.parametrize("flags", [["-n", "0"], ["-n", "9"]])
def test_answers_of_no_text(invoke: Invoke, tmp_path: Path, flags: list[str]) -> None:
    puppet = make_puppet(tmp_path / "model", [])
    args = ["generate", "-m", str(puppet.folder), "hi", *flags]
    result = invoke(*args, "-v", "--logprobs", "2")
    assert (result.code, result.out) == (0, "\n")
    none = flags[1] == "0"
    new = int(not none)
    told = f"{'0 tokens' if none else '1 token'}, -, finish reason: {'length' if none else 'stop'}"
    assert f"decode: {told}" in result.err
    assert ("time to first token -" in result.err) == (new == 0)
    told = json.loads(invoke(*args, "--json").out)
    assert (told["text"], len(told["ids"])) == ("", new)
    assert told["timings"]["decode_tokens_per_second"] is None
    assert (told["timings"]["first_token_seconds"] is None) == (new == 0)


def test_echo_of_an_empty_answer(invoke: Invoke, tmp_path: Path) -> None:
    puppet = make_puppet(tmp_path / "model", [])
    assert invoke("generate", "-m", str(puppet.folder), "hi", "--echo").out == "hi\n"
