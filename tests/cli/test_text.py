"""The answer's text: whole characters, spaces, special tokens, stop strings (B1, B2, B6, D10)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from tests.cli.conftest import Invoke
from tests.puppet import Added, Kind, Script, make_puppet

EMOJI = "🙂".encode()
FAMILY = "👨‍👩‍👧".encode()


def say(folder: Path, script: Script, **how: Any) -> str:
    """The folder of a puppet with that script."""
    return str(make_puppet(folder / "model", script, **how).folder)


def decoded(model: str, ids: list[int]) -> str:
    """One decode of all ids, by the library itself."""
    text: str = Tokenizer.from_file(f"{model}/tokenizer.json").decode(ids, skip_special_tokens=True)
    return text


@pytest.mark.parametrize("kind", ["byte-level", "byte-fallback"])
@pytest.mark.parametrize(
    ("script", "budget", "expected"),
    [
        (["a", EMOJI, "b"], 9, "a🙂b"),
        (["a", FAMILY, "b"], 99, "a👨‍👩‍👧b"),
        ([EMOJI, EMOJI], 99, "🙂🙂"),
        (["a", EMOJI, "b"], 3, "a�"),
        (["a", EMOJI], 2, "a�"),
        (["a", b"\xff", "b", EMOJI, "c"], 99, "a�b🙂c"),
        (["a", EMOJI[:2], "b"], 99, "a�b"),
        (["a", "�", "b"], 99, "a�b"),
    ],
)
def test_characters_over_several_tokens(
    invoke: Invoke, tmp_path: Path, kind: Kind, script: Script, budget: int, expected: str
) -> None:
    model = say(tmp_path, script, kind=kind)
    args = ["generate", "-m", model, "-n", str(budget), "hi"]
    result = invoke(*args)
    # Broken bytes are as many replacement characters as the tokenizer's own decoder makes.
    whole = json.loads(invoke(*args, "--json").out)
    assert whole["text"] == decoded(model, whole["ids"])
    assert result.out == whole["text"] + "\n"
    assert result.out.replace("��", "�") == expected + "\n"
    # Nothing is shown of a character before all of it is there.
    assert "".join(piece.decode() for piece in result.writes) == result.out
    assert result.code == 0


def test_nothing_is_shown_before_the_last_byte(invoke: Invoke, tmp_path: Path) -> None:
    model = say(tmp_path, ["a", EMOJI, "b"])
    assert invoke("generate", "-m", model, "hi").writes == [b"a", EMOJI, b"b", b"\n"]


@pytest.mark.parametrize("kind", ["byte-level", "byte-fallback"])
@pytest.mark.parametrize(
    ("prompt", "script"),
    [
        ("Hi", [" there", ",", " you"]),
        ("Hi", ["there"]),
        ("if x:\n", ["    ", "y", " ", "=", " 1"]),
        (" lead", [" ", " more"]),
        ("Hi ", [" there"]),
    ],
)
def test_spaces_are_the_models_own(
    invoke: Invoke, tmp_path: Path, kind: Kind, prompt: str, script: list[str]
) -> None:
    model = say(tmp_path, script, kind=kind)
    args = ["generate", "-m", model, prompt]
    assert invoke(*args).out == "".join(script) + "\n"
    told = json.loads(invoke(*args, "--json").out)
    echoed = invoke(*args, "--echo").out
    assert echoed == decoded(model, told["prompt_ids"] + told["ids"]) + "\n"
    assert echoed.endswith("".join(script) + "\n")


def test_echo_of_a_chat_is_its_prompt(invoke: Invoke, tmp_path: Path) -> None:
    template = "<|u|>{{ messages[0].content }}<|a|>"
    added = [Added("<|u|>"), Added("<|a|>")]
    model = say(tmp_path, ["yes"], added=added, chat_template=template)
    assert invoke("generate", "-m", model, "ok? ", "--echo").out == "ok? yes\n"
    shown = invoke("generate", "-m", model, "ok? ", "--echo", "--show-special").out
    assert shown == "<|u|>ok? <|a|>yes\n"


@pytest.mark.parametrize(
    ("special", "flags", "expected"),
    [
        (True, [], "ab"),
        (True, ["--show-special"], "<think>a<tool>b"),
        (False, [], "<think>ab"),
        (False, ["--show-special"], "<think>a<tool>b"),
    ],
)
def test_special_tokens_follow_one_flag(
    invoke: Invoke, tmp_path: Path, special: bool, flags: list[str], expected: str
) -> None:
    added = [Added("<think>", special=special), Added("<tool>")]
    model = say(tmp_path, ["<think>", "a", "<tool>", "b"], added=added)
    result = invoke("generate", "-m", model, "hi", *flags)
    # The end token is never shown, whatever the flag.
    assert result.out == expected + "\n"


ABC = ["A", "BC ", "D", "EF", " G", "HI", " J"]


@pytest.mark.parametrize(
    ("script", "stops", "expected"),
    [
        (ABC, ["EF"], "ABC D"),
        (ABC, ["DE"], "ABC "),
        (ABC, ["C DEF GH"], "AB"),
        (ABC, [" J"], "ABC DEF GHI"),
        (ABC, ["never"], "ABC DEF GHI J"),
        (ABC, ["DEF GHX"], "ABC DEF GHI J"),
        (ABC, ["GHI", "C D"], "AB"),
        (["aa", "a", "b", "c"], ["aab"], "a"),
        (["one STOP two", " three"], ["STOP"], "one "),
        (["abc", "dx"], ["bc", "abcde"], "a"),
        (["abc", "de"], ["bc", "abcde"], ""),
        (["a", EMOJI, "b"], ["🙂"], "a"),
        (["a", "é".encode(), "b"], ["é"], "a"),
        (["end", "."], ["."], "end"),
    ],
)
def test_stop_strings_over_token_borders(
    invoke: Invoke, tmp_path: Path, script: Script, stops: list[str], expected: str
) -> None:
    model = say(tmp_path, script)
    args = ["generate", "-m", model, "hi", *[part for stop in stops for part in ("--stop", stop)]]
    result = invoke(*args)
    assert result.out == expected + "\n"
    told = json.loads(invoke(*args, "--json").out)
    assert told["text"] == expected
    assert told["finish_reason"] == "stop"
    assert told["stop_string"] in [*stops, None]
    assert (told["stop_string"] is None) == (expected == "".join(map(_as_text, script)))


def _as_text(piece: str | bytes) -> str:
    return piece if isinstance(piece, str) else piece.decode()


def test_no_part_of_a_stop_string_is_printed_on_the_way(invoke: Invoke, tmp_path: Path) -> None:
    model = say(tmp_path, ABC)
    result = invoke("generate", "-m", model, "hi", "--stop", "DEF GHX")
    shown = [piece.decode() for piece in result.writes]
    # Held from D on, and let go as soon as it cannot match any more.
    assert shown == ["A", "BC ", "DEF GHI", " J", "\n"]


def test_budget_ends_within_a_held_stop(invoke: Invoke, tmp_path: Path) -> None:
    model = say(tmp_path, ABC)
    result = invoke("generate", "-m", model, "hi", "--stop", "DEF GHX", "-n", "4")
    assert result.out == "ABC DEF\n"


def test_stop_string_in_the_prompt_does_not_count(invoke: Invoke, tmp_path: Path) -> None:
    model = say(tmp_path, ABC)
    result = invoke("generate", "-m", model, "DEF D", "--stop", "DEF", "--echo")
    assert result.out == "DEF DABC \n"
