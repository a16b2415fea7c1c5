"""C4: the ids that end a reply are the union of all sources, each named."""

from __future__ import annotations

from pathlib import Path

import pytest
from text_builders import CHATML, byte_level, save, template
from tokenizers import AddedToken

from llmcli.errors import CheckpointError
from llmcli.text.stop_ids import StopId, collect_stop_ids
from llmcli.text.tokenizer import Tokenizer

GENERATION, CONFIG, TOKENIZER = "generation_config.json", "config.json", "tokenizer eos_token"


@pytest.fixture
def tokenizer(tmp_path: Path) -> Tokenizer:
    return Tokenizer.load(save(byte_level(), tmp_path, eos_token="<|im_end|>"))


def ids(*args: object) -> list[int]:
    return [stop.id for stop in collect_stop_ids(*args)]


def test_union_in_order_with_sources(tokenizer: Tokenizer) -> None:
    stops = collect_stop_ids({"eos_token_id": [3, 7]}, {"eos_token_id": 3}, tokenizer)
    assert stops == (
        StopId(3, tokenizer.token_text(3), (GENERATION, CONFIG)),
        StopId(7, tokenizer.token_text(7), (GENERATION,)),
        StopId(2, "<|im_end|>", (TOKENIZER,)),
    )


@pytest.mark.parametrize(
    ("generation", "config", "expected"),
    [
        (None, None, [2]),
        ({}, {}, [2]),
        ({"eos_token_id": None}, {"eos_token_id": None}, [2]),
        ({"eos_token_id": 4}, None, [4, 2]),
        (None, {"eos_token_id": [5, 4]}, [5, 4, 2]),
        ({"eos_token_id": []}, {"eos_token_id": 2}, [2]),
        ({"eos_token_id": [4, 4]}, {"eos_token_id": 4}, [4, 2]),
        ({"eos_token_id": [-1, 10**6]}, {"eos_token_id": 4}, [4, 2]),
        ({"eos_token_id": 400}, {"vocab_size": 401}, [400, 2]),
        ({"eos_token_id": 401}, {"vocab_size": 401}, [2]),
    ],
)
def test_int_list_null_absent_and_out_of_range(
    tokenizer: Tokenizer, generation: dict | None, config: dict | None, expected: list[int]
) -> None:
    assert ids(generation, config, tokenizer) == expected


@pytest.mark.parametrize("value", ["</s>", True, 2.0, [1, "2"], [[1]], {"id": 1}])
def test_wrong_types_are_refused_by_name(tokenizer: Tokenizer, value: object) -> None:
    for files, name in (
        (({"eos_token_id": value}, None), GENERATION),
        ((None, {"eos_token_id": value}), CONFIG),
    ):
        with pytest.raises(CheckpointError, match=name) as caught:
            collect_stop_ids(*files, tokenizer)
        assert repr(value) in caught.value.message


def test_turn_end_that_only_the_template_knows(tmp_path: Path) -> None:
    backend = byte_level()
    tokenizer = Tokenizer.load(save(backend, tmp_path, eos_token="<|endoftext|>"))
    stops = collect_stop_ids({"eos_token_id": 0}, None, tokenizer, template(CHATML))
    assert stops[-1] == StopId(2, "<|im_end|>", ("chat template",))
    assert [stop.id for stop in stops] == [0, 2]


@pytest.mark.parametrize(
    "text",
    [
        CHATML.replace("+ '<|im_end|>\\n'", "+ ('' if loop.last else '<|im_end|>')"),
        CHATML + "{% for t in tools %}{% endfor %}",
    ],
)
def test_turn_end_that_needs_a_next_turn_or_a_list_of_tools(tmp_path: Path, text: str) -> None:
    tokenizer = Tokenizer.load(save(byte_level(), tmp_path))
    assert ids(None, None, tokenizer, template(text)) == [2]


@pytest.mark.parametrize(
    "text",
    [
        "{{ raise_exception('no') }}",
        "{% for m in messages %}{{ m.content }}{% endfor %}",
        "{% for m in messages %}{{ m.content }} END {% endfor %}<|im_end|>",
        "{{ messages[0].content }}<|im_end|>",
        "{{ 1 + 'a' }}",
    ],
)
def test_no_turn_end_where_the_template_writes_none(tokenizer: Tokenizer, text: str) -> None:
    stops = collect_stop_ids(None, None, tokenizer, template(text))
    assert [stop.sources for stop in stops] == [(TOKENIZER,)]


@pytest.mark.parametrize(
    ("mark", "special", "ends"),
    [
        ("\n", True, False),
        ("\n\n", False, False),
        ("###", False, False),
        ("User", False, False),
        ("<|eot|>", False, True),
        ("[/END]", False, True),
        ("EOT", True, True),
    ],
)
def test_no_piece_of_plain_text_ends_a_reply(
    tmp_path: Path, mark: str, special: bool, ends: bool
) -> None:
    """C4: a reply with such a piece in it would be cut there."""
    backend = byte_level()
    token = AddedToken(mark, special=special, normalized=False)
    (backend.add_special_tokens if special else backend.add_tokens)([token])
    tokenizer = Tokenizer.load(save(backend, tmp_path))
    text = "{% for m in messages %}{{ m.content }}MARK{% endfor %}".replace("MARK", mark + "\n")
    found = collect_stop_ids(None, None, tokenizer, template(text))
    assert [stop.text for stop in found] == ([mark] if ends else [])


def test_spaces_before_the_turn_end_and_the_same_token_twice(tokenizer: Tokenizer) -> None:
    text = "{% for m in messages %}{{ m.content }} \n<|im_end|>{% endfor %}"
    (stop,) = collect_stop_ids({"eos_token_id": 2}, None, tokenizer, template(text))
    assert stop.sources == (GENERATION, TOKENIZER, "chat template")
