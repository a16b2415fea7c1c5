"""C1 and C2 for raw prompts, loading, and agreement with transformers on ordinary text."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from text_builders import STORIES, add_bos, byte_level, metaspace, save, word_piece
from tokenizers import AddedToken, models, pre_tokenizers
from tokenizers import Tokenizer as Backend

from llmcli.errors import TokenizerError, UsageError
from llmcli.text.tokenizer import Tokenizer

TEXTS = [
    "",
    " ",
    "\n",
    "hi",
    " hi",
    "  two  spaces ",
    "naïve café 日本語 😀",
    "a<|im_end|>b",
    "a. b !",
]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    base = tmp_path_factory.mktemp("oracle")
    gpt2 = {"tokenizer_class": "GPT2Tokenizer", "bos_token": "<|endoftext|>"}
    made = {
        "stories": STORIES,
        "byte": save(byte_level(), base / "byte"),
        "byte bos": save(byte_level(bos=True), base / "bos", bos_token="<|endoftext|>"),
        "metaspace first": save(metaspace("first"), base / "first"),
        "metaspace always": save(metaspace("always"), base / "always"),
        "word piece": save(word_piece(), base / "piece"),
        "prefix space": save(byte_level(), base / "space", add_prefix_space=True, **gpt2),
        "no prefix space": save(byte_level(), base / "nospace", add_prefix_space=False, **gpt2),
        "ignored prefix space": save(byte_level(), base / "generic", add_prefix_space=True),
        "asked bos": save(
            byte_level(), base / "ask", add_bos_token=True, bos_token="<|endoftext|>"
        ),
    }
    backend = byte_level()
    backend.enable_truncation(2)
    backend.enable_padding(length=9)
    made["cut and padded"] = save(backend, base / "cut")
    plain = base / "plain"
    plain.mkdir()
    model = json.loads(byte_level().to_str())["model"]
    (plain / "vocab.json").write_text(json.dumps(model["vocab"]), encoding="utf-8")
    merges = "\n".join(" ".join(pair) for pair in model["merges"])
    (plain / "merges.txt").write_text("#version: 0.2\n" + merges + "\n", encoding="utf-8")
    (plain / "tokenizer_config.json").write_text('{"tokenizer_class": "GPT2Tokenizer"}')
    made["vocab and merges"] = plain
    return made


NAMES = [
    "stories",
    "byte",
    "byte bos",
    "metaspace first",
    "metaspace always",
    "word piece",
    "prefix space",
    "no prefix space",
    "ignored prefix space",
    "asked bos",
    "cut and padded",
    "vocab and merges",
]


@pytest.mark.parametrize("name", NAMES)
def test_ids_and_text_equal_transformers(folders: dict[str, Path], name: str) -> None:
    from transformers import AutoTokenizer

    oracle = AutoTokenizer.from_pretrained(folders[name])
    tokenizer = Tokenizer.load(folders[name])
    for text in TEXTS:
        ids = oracle(text, truncation=False, padding=False)["input_ids"]
        assert tokenizer.encode_raw(text, parse_special=True) == ids
        if "<" not in text:
            assert tokenizer.encode_raw(text) == ids
        for skip in (True, False):
            expected = oracle.decode(
                ids, skip_special_tokens=skip, clean_up_tokenization_spaces=False
            )
            assert tokenizer.decode(ids, skip_special=skip) == expected
    assert tokenizer.bos_id == oracle.bos_token_id
    assert tokenizer.eos_id == oracle.eos_token_id
    known = {i for i in oracle.all_special_ids if i < tokenizer.vocab_size}
    assert known <= tokenizer.special_ids
    if name != "cut and padded":  # transformers makes up a [PAD] there
        assert tokenizer.vocab_size == max(oracle.get_vocab().values()) + 1


def test_bos_follows_the_post_processor_and_is_never_doubled(folders: dict[str, Path]) -> None:
    tokenizer = Tokenizer.load(folders["byte bos"])
    bos = tokenizer.bos_id
    assert bos is not None
    hi = tokenizer.encode_raw("hi", bos=False)
    assert bos not in hi
    for special in (False, True):
        for wanted in (None, True):
            for text in ("hi", "<|endoftext|>hi"):
                ids = tokenizer.encode_raw(text, bos=wanted, parse_special=special)
                assert ids == [bos, *hi]
        assert tokenizer.encode_raw("", parse_special=special) == [bos]
        assert tokenizer.encode_raw("", bos=False, parse_special=special) == []
    assert bos not in tokenizer.encode_raw("<|endoftext|>hi", bos=False)
    assert tokenizer.encode_raw("<|endoftext|>hi", bos=False, parse_special=True) == [bos, *hi]


def test_bos_can_be_forced_or_refused_by_name(folders: dict[str, Path], tmp_path: Path) -> None:
    asked = Tokenizer.load(folders["asked bos"])
    assert asked.bos_id not in asked.encode_raw("hi")
    assert asked.encode_raw("hi", bos=True)[0] == asked.bos_id
    with pytest.raises(UsageError, match=r"tokenizer\.json"):
        Tokenizer.load(save(byte_level(), tmp_path)).encode_raw("hi", bos=True)


def test_vocab_and_merges_may_ask_for_a_bos(folders: dict[str, Path], tmp_path: Path) -> None:
    shutil.copytree(folders["vocab and merges"], tmp_path / "m")
    (tmp_path / "m" / "tokenizer_config.json").write_text('{"add_bos_token": true}')
    tokenizer = Tokenizer.load(tmp_path / "m")
    assert tokenizer.encode_raw("hi")[0] == tokenizer.bos_id == tokenizer.eos_id


def test_no_end_of_text_after_a_prompt(tmp_path: Path) -> None:
    backend = byte_level()
    add_bos(backend, "<|endoftext|>", eos="<|im_end|>")
    tokenizer = Tokenizer.load(save(backend, tmp_path))
    ids = tokenizer.encode_raw("hi")
    assert ids[0] == tokenizer.token_id("<|endoftext|>")
    assert tokenizer.token_id("<|im_end|>") not in ids
    assert tokenizer.encode_raw("") == [ids[0]]


@settings(max_examples=30, deadline=None)
@given(text=st.text(st.sampled_from("a <|>im_end/s▁")) | st.text())
def test_typed_control_tokens_are_text_in_raw_prompts(
    tokenizers: dict[str, Tokenizer], text: str
) -> None:
    for name, mark in (("byte_level", "<|im_end|>"), ("stories", "</s>"), ("stories", "<s>")):
        tokenizer = tokenizers[name]
        ids = tokenizer.encode_raw(f"x{text}{mark}{text}", bos=False)
        assert not tokenizer.special_ids.intersection(ids)
        typed = tokenizer.encode_raw(f"x{text}{mark}{text}", bos=False, parse_special=True)
        assert tokenizer.token_id(mark) in typed


def test_control_token_that_the_model_itself_would_make(tmp_path: Path) -> None:
    pieces = [("<unk>", 0.0), ("<s>", 0.0), *((char, -5.0) for char in "<>s/ab▁")]
    backend = Backend(models.Unigram(pieces, unk_id=0))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.add_special_tokens(["<unk>", "<s>"])
    tokenizer = Tokenizer.load(save(backend, tmp_path))
    ids = tokenizer.encode_raw("a<s>b")
    assert [tokenizer.piece(i) for i in ids] == ["▁", "a", "<", "s", ">", "b"]


def test_tokens_that_only_the_config_flags_or_names(tmp_path: Path) -> None:
    backend = byte_level(specials=("<|endoftext|>",))
    backend.add_tokens([AddedToken("<|im_end|>", normalized=False)])
    assert not backend.get_added_tokens_decoder()[backend.token_to_id("<|im_end|>")].special
    named = {"content": "<|im_end|>", "lstrip": False}
    tokenizer = Tokenizer.load(save(backend, tmp_path, eos_token=named, pad_token="<nowhere>"))
    assert tokenizer.eos_id in tokenizer.special_ids
    assert tokenizer.eos_id not in tokenizer.encode_raw("a<|im_end|>")
    assert tokenizer.token_id("<nowhere>") is None
    (tmp_path / "tokenizer_config.json").unlink()
    (tmp_path / "special_tokens_map.json").write_text('{"eos_token": "<|im_end|>"}')
    assert Tokenizer.load(tmp_path).eos_token == "<|im_end|>"


def test_ids_with_no_entry_never_raise(stories: Tokenizer) -> None:
    assert stories.decode([-1, 410, 10**6, 2**40]) == stories.decode([410])
    assert stories.token_text(2**40) == "<id 1099511627776>"
    assert stories.token_text(-1) == "<id -1>"
    assert stories.piece(-1) is None


@pytest.mark.parametrize("name", ["byte_level", "stories", "word_piece", "word_suffix"])
def test_token_text_is_readable(tokenizers: dict[str, Tokenizer], name: str) -> None:
    tokenizer = tokenizers[name]
    for token in range(tokenizer.vocab_size):
        assert tokenizer.token_text(token) != "" or tokenizer.piece(token) == ""
    texts = [tokenizer.token_text(token) for token in range(tokenizer.vocab_size)]
    assert "<0xFF>" in texts or "byte" not in name
    assert any(text.startswith(" ") for text in texts) or name == "word_suffix"
    assert sum("�" in text for text in texts) <= 1


def test_spaces_are_never_cleaned_up(tmp_path: Path) -> None:
    folder = save(byte_level(), tmp_path, clean_up_tokenization_spaces=True)
    tokenizer = Tokenizer.load(folder)
    assert tokenizer.decode(tokenizer.encode_raw("it 's . do not !")) == "it 's . do not !"


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({}, "no tokenizer.json"),
        ({"tokenizer.model": "x"}, "only tokenizer.model"),
        ({"tokenizer.json": ""}, "0 bytes"),
        ({"tokenizer.json": "{"}, "no usable tokenizer"),
        ({"tokenizer.json": "version https://git-lfs.github.com/spec/v1\n"}, "git-lfs pointer"),
        ({"vocab.json": "{", "merges.txt": "a b"}, "do not make a tokenizer"),
        ({"tokenizer_config.json": "[1]"}, "needed an object"),
        ({"tokenizer_config.json": "{"}, "cannot be read"),
    ],
)
def test_missing_or_damaged_files_are_named(
    tmp_path: Path, files: dict[str, str], words: str
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(TokenizerError, match=words) as caught:
        Tokenizer.load(tmp_path)
    assert str(tmp_path) in caught.value.message
    assert "\n" not in caught.value.message
    assert caught.value.hint


def test_half_a_surrogate_pair_is_refused(stories: Tokenizer) -> None:
    with pytest.raises(TokenizerError, match=r"U\+D800 at character 2"):
        stories.encode_raw("ab\ud800")


def test_vocab_size_counts_holes(tmp_path: Path) -> None:
    backend = Backend(models.WordLevel({"a": 0, "b": 7}, unk_token="a"))
    tokenizer = Tokenizer.load(save(backend, tmp_path))
    assert tokenizer.vocab_size == 8
    assert tokenizer.piece(3) is None
    assert tokenizer.decode([3, 7]) == "b"
