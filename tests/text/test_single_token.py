"""A text named by the user is one token exactly, or refused with what it would take."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmcli.errors import UsageError
from llmcli.text.same_vocabulary import first_difference
from llmcli.text.single_token import single_token
from llmcli.text.tokenizer import Tokenizer
from tests.puppet import make_puppet

STORIES = Path(__file__).parents[2] / "weights" / "stories260k"


@pytest.fixture(scope="module")
def stories() -> Tokenizer:
    return Tokenizer.load(STORIES)


@pytest.fixture(scope="module")
def letters(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder = tmp_path_factory.mktemp("bytes")
    made = make_puppet(folder, ["Zürich", " yes", "é".encode()[:1]], kind="byte-level")
    return Tokenizer.load(made.folder)


def test_what_is_found_writes_exactly_the_text(stories: Tokenizer) -> None:
    for id_ in range(3, stories.vocab_size):
        text = stories.token_text(id_)
        if text.startswith("<0x"):
            continue
        assert stories.token_text(single_token(stories, text)) == text


def test_byte_level_spellings(letters: Tokenizer) -> None:
    for text in ("Zürich", " yes", "a", "\n"):
        assert letters.token_text(single_token(letters, text)) == text


def test_an_added_token_by_its_name(stories: Tokenizer, letters: Tokenizer) -> None:
    assert single_token(stories, "</s>") == stories.eos_id
    assert letters.piece(single_token(letters, "<|end|>")) == "<|end|>"


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("Hello world", "' He' (346) + 'll' (306)", "name one token"),
        ("Lily", "no single token writes 'Lily'", "' Lily', with the space in front"),
        ("yes" * 20, "more", "name one token"),
    ],
)
def test_refusals(stories: Tokenizer, text: str, message: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        single_token(stories, text)
    assert message in caught.value.message
    assert hint in (caught.value.hint or "")


def test_the_same_tokenizer(stories: Tokenizer) -> None:
    assert first_difference(stories, Tokenizer.load(STORIES)) is None


def _swapped_ids(model: dict[str, Any]) -> None:
    vocab = model["vocab"]
    vocab["a"], vocab["b"] = vocab["b"], vocab["a"]


def _one_merge_less(model: dict[str, Any]) -> None:
    del model["merges"][-1]


def _swapped_merges(model: dict[str, Any]) -> None:
    merges = model["merges"]
    merges[3], merges[4] = merges[4], merges[3]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (_swapped_ids, "' in one and '"),
        (_one_merge_less, "' in one and nothing in the other"),
        (_swapped_merges, "merge 3 is '"),
    ],
)
def test_the_first_difference_is_named(
    tmp_path: Path, stories: Tokenizer, change: Callable[[dict[str, Any]], None], told: str
) -> None:
    data = json.loads((STORIES / "tokenizer.json").read_text(encoding="utf-8"))
    change(data["model"])
    (tmp_path / "tokenizer.json").write_text(json.dumps(data), encoding="utf-8")
    difference = first_difference(stories, Tokenizer.load(tmp_path))
    assert difference is not None
    assert told in difference
