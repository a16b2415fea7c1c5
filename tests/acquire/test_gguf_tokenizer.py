"""Imported tokenizers against the tokenizer they came from, and against transformers' loader."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoTokenizer
from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS

from llmcli.acquire.gguf.pretokenizers import PRE_TOKENIZERS
from llmcli.acquire.gguf_import import convert
from llmcli.acquire.places import embedded
from llmcli.errors import CheckpointError

from .ggufs import ALPHABET, Shape, Vocab, byte_vocab, write_gguf

TEXTS = [
    "Hello world", "hello, World! it's we'll I'M HE'LL", "123 4567 2018-01-22 3.14e-10", "x" * 40,
    "a\n\n\tb   c  \n", "   7  8", "  two spaces", "trailing   ", "\r\n\r\n x", "\t\ttabs\tin",
    "def f(x):\n    return x**2 # ok\n", "héllo ünïcode ça", "你好，世界 こんにちは",
    "🎉👩‍👩‍👧 zwj",
    "١٢٣ ½ Ⅷ", "<think>a</think>", "CamelCaseWord HTTPServer", "e\u0301 decomposed", "", " ",
]  # fmt: skip
CORPUS = [*TEXTS * 3, "the quick brown fox jumps over 12 lazy dogs " * 3, "it's THE end. " * 5]


def trained(pre: Any) -> Tokenizer:
    """A byte-level tokenizer learned on the texts, cut by `pre`."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=420,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def vocab_of(tokenizer: Tokenizer, pre: str, **extra: Any) -> Vocab:
    model = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].__getitem__)
    kinds = [3, 3, *[1] * (len(tokens) - 2)]
    merges = [" ".join(pair) for pair in model["merges"]]
    return Vocab(pre=pre, tokens=tokens, kinds=kinds, merges=merges, extra=extra)


def imported(folder: Path, vocab: Vocab) -> Tokenizer:
    shape = Shape(vocab=max(len(vocab.tokens), 32))
    write_gguf(folder / "m.gguf", vocab=vocab, shape=shape)
    convert(folder / "m.gguf", folder / "out")
    return Tokenizer.from_file(str(folder / "out" / "tokenizer.json"))


def split_by(pattern: str) -> Any:
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def plain_ids(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize("pre", ["gpt-2", "smollm", "llama-bpe", "qwen2", "tekken", "gpt-4o"])
def test_named_pre_tokenizers_cut_as_the_source_does(tmp_path: Path, pre: str):
    cuts = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if pre == "smollm":
        # Every digit alone; transformers' GGUF loader does not know this name, the model does.
        cuts = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), cuts])
    elif pre != "gpt-2":
        cuts = split_by(GGUF_PRE_TOKENIZER_SPLITS[pre])
    source = trained(cuts)
    if PRE_TOKENIZERS[pre].whole_words:
        model = json.loads(source.to_str())
        model["model"]["ignore_merges"] = True
        source = Tokenizer.from_str(json.dumps(model))
    ours = imported(tmp_path, vocab_of(source, pre))
    theirs = AutoTokenizer.from_pretrained(tmp_path, gguf_file="m.gguf")
    for text in TEXTS:
        if pre == "qwen2" and text.startswith("e\u0301"):
            continue  # Qwen2 composes first, which the trained source here does not.
        ids = plain_ids(ours, text)
        assert ids == plain_ids(source, text), text
        assert ours.decode(ids, skip_special_tokens=False) == text
        if pre != "smollm":
            assert ids == theirs(text, add_special_tokens=False).input_ids, text


def test_qwen2_composes_letters_first(tmp_path: Path):
    ours = imported(tmp_path, byte_vocab_with(pre="qwen2"))
    assert plain_ids(ours, "e\u0301") == plain_ids(ours, "é")


@pytest.mark.parametrize(("pre", "count"), [("llama-bpe", 1), ("qwen2", 3)])
def test_word_that_is_a_token_needs_no_merges_where_the_rule_says_so(
    tmp_path: Path, pre: str, count: int
):
    vocab = byte_vocab()
    tokens, kinds = [*vocab.tokens, "hello"], [*vocab.kinds, 1]
    ours = imported(tmp_path, byte_vocab_with(pre=pre, tokens=tokens, kinds=kinds))
    assert len(plain_ids(ours, "hello")) == count


def byte_vocab_with(**changes: Any) -> Vocab:
    vocab = byte_vocab()
    for name, value in changes.items():
        setattr(vocab, name, value)
    return vocab


@pytest.mark.parametrize("pre", ["unheard-of", "default", None])
def test_unknown_pre_tokenizer_is_refused_with_the_known_ones(tmp_path: Path, pre: str | None):
    write_gguf(tmp_path / "m.gguf", vocab=byte_vocab_with(pre=pre))
    with pytest.raises(CheckpointError, match=pre or "names no pre-tokenizer") as caught:
        convert(tmp_path / "m.gguf", tmp_path / "out")
    assert "llama-bpe" in caught.value.hint
    assert "smollm" in caught.value.hint
    assert not (tmp_path / "out").exists()


def test_unknown_tokenizer_kind_is_refused(tmp_path: Path):
    write_gguf(tmp_path / "m.gguf", vocab=byte_vocab_with(model="rwkv"))
    with pytest.raises(CheckpointError, match="rwkv"):
        convert(tmp_path / "m.gguf", tmp_path / "out")


def sentencepiece_vocab(**extra: Any) -> tuple[Vocab, Tokenizer]:
    """The embedded model's vocabulary as a scored one, and the tokenizer it is."""
    folder = embedded("stories260k")
    assert folder is not None
    source = Tokenizer.from_file(str(folder / "tokenizer.json"))
    model = json.loads(source.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].__getitem__)
    rank = {"".join(pair): -float(i) for i, pair in reversed(list(enumerate(model["merges"])))}
    kinds = [2, 3, 3] + [6 if t.startswith("<0x") else 1 for t in tokens[3:]]
    vocab = Vocab(
        model="llama", pre="default", tokens=tokens, kinds=kinds, merges=None,
        scores=[rank.get(token, -1e4) for token in tokens],
        ids={"bos": 1, "eos": 2, "unknown": 0}, extra=extra,
    )  # fmt: skip
    return vocab, source


def test_sentencepiece_merges_come_from_scores(tmp_path: Path):
    vocab, source = sentencepiece_vocab()
    ours = imported(tmp_path, vocab)
    theirs = AutoTokenizer.from_pretrained(tmp_path, gguf_file="m.gguf")
    for text in [*TEXTS, "Once upon a time, there was a little girl", "<s>again</s> so"]:
        assert ours.encode(text).ids == source.encode(text).ids, text
        if not text.startswith((" ", "<")) and "<" not in text and text:
            assert ours.encode(text).ids == theirs(text).input_ids, text
        assert ours.decode(plain_ids(ours, text)) == source.decode(plain_ids(source, text))


def test_no_space_prefix_when_the_file_says_so(tmp_path: Path):
    vocab, source = sentencepiece_vocab(**{"tokenizer.ggml.add_space_prefix": False})
    ours = imported(tmp_path, vocab)
    assert plain_ids(ours, " the") == plain_ids(source, "the")
    assert ours.decode(plain_ids(ours, " the")) == " the"


@pytest.mark.parametrize(
    ("pre", "extra", "begins", "ends"),
    [
        ("gpt-2", {}, False, False),
        ("llama-bpe", {}, True, False),
        ("llama-bpe", {"tokenizer.ggml.add_bos_token": False}, False, False),
        ("gpt-2", {"tokenizer.ggml.add_bos_token": True}, True, False),
        ("gpt-2", {"tokenizer.ggml.add_eos_token": True}, False, True),
    ],
)
def test_begin_and_end_tokens(tmp_path: Path, pre: str, extra: Any, begins: bool, ends: bool):
    ours = imported(tmp_path, byte_vocab_with(pre=pre, extra=extra))
    ids = ours.encode("hello").ids
    assert (ids[0] == 0, ids[-1] == 1) == (begins, ends)
    assert ours.encode("hello", add_special_tokens=False).ids == ids[begins : len(ids) - ends]
    config = json.loads((tmp_path / "out/tokenizer_config.json").read_text())
    assert config["add_bos_token"] is begins
    assert AutoTokenizer.from_pretrained(tmp_path / "out")("hello").input_ids == ids


def test_kinds_decide_what_is_special(tmp_path: Path):
    ours = imported(tmp_path, byte_vocab())
    ids = plain_ids(ours, "<s>hello<think></s>")
    assert ids[0] == 0
    assert ids[-1] == 1
    assert ours.decode(ids) == "hello<think>"
    assert ours.token_to_id("<think>") in ids


def test_all_stop_ids_are_in_generation_config(tmp_path: Path):
    vocab = byte_vocab()
    vocab.ids = {"bos": 0, "eos": 1, "eot": 5, "eom": 6, "padding": 1}
    imported(tmp_path, vocab)
    made = json.loads((tmp_path / "out/generation_config.json").read_text())
    assert made == {"bos_token_id": 0, "eos_token_id": [1, 5, 6], "pad_token_id": 1}


@pytest.mark.parametrize(("kind", "wanted"), [(3, [1, 260]), (1, 1)])
def test_turn_end_is_found_by_its_text_when_it_is_a_control_token(
    tmp_path: Path, kind: int, wanted: Any
):
    vocab = byte_vocab()
    tokens, kinds = list(vocab.tokens), list(vocab.kinds)
    tokens[260], kinds[260] = "<|eot_id|>", kind
    imported(tmp_path, byte_vocab_with(tokens=tokens, kinds=kinds))
    made = json.loads((tmp_path / "out/generation_config.json").read_text())
    assert made["eos_token_id"] == wanted


def test_chat_templates_plain_and_named(tmp_path: Path):
    key = "tokenizer.chat_template"
    imported(tmp_path, byte_vocab_with(extra={key: "{{ messages }}"}))
    path = tmp_path / "out/tokenizer_config.json"
    assert json.loads(path.read_text())["chat_template"] == "{{ messages }}"
    imported(tmp_path, byte_vocab_with(extra={key: "d", key + ".tool_use": "t"}))
    assert json.loads(path.read_text())["chat_template"] == [
        {"name": "default", "template": "d"},
        {"name": "tool_use", "template": "t"},
    ]
    imported(tmp_path, byte_vocab())
    assert "chat_template" not in json.loads(path.read_text())


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"merges": ["h e", "h zz"]}, r"merge 1 .*h zz"),
        ({"merges": ["nospace"]}, r"merge 0"),
        ({"tokens": [*byte_vocab().tokens, "he"], "kinds": []}, r"'he' as 258 and as 261"),
        ({"kinds": [1, 2]}, "261 tokens and 2 token types"),
        ({"ids": {"eos": 900}}, r"eos_token_id is 900, the vocabulary has 261"),
        ({"tokens": [*ALPHABET, *map(str, range(100, 200))], "kinds": []}, "356 tokens for 288"),
        ({"model": "llama", "merges": None}, "261 tokens and 0 scores"),
        ({"extra": {"tokenizer.chat_template": 7}}, "chat_template is int, not str"),
    ],
)
def test_damaged_vocabularies_are_refused(tmp_path: Path, changes: dict[str, Any], match: str):
    write_gguf(tmp_path / "m.gguf", vocab=byte_vocab_with(**changes))
    with pytest.raises(CheckpointError, match=match):
        convert(tmp_path / "m.gguf", tmp_path / "out")
