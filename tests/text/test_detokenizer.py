"""B1, B2, B4, B6: streamed pieces joined equal one decode of all ids, always."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from text_builders import BUILT, ODD, save, word_suffix
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models
from tokenizers.decoders import Decoder

from llmcli.errors import TokenizerError
from llmcli.text.detokenizer import Detokenizer, hidden_ids
from llmcli.text.panics import decoded
from llmcli.text.tokenizer import Tokenizer


def stream(
    tokenizer: Tokenizer,
    ids: Iterable[int],
    prompt: Sequence[int] = (),
    hidden: frozenset[int] = frozenset(),
) -> list[str]:
    detokenizer = Detokenizer(tokenizer, prompt, hidden=hidden)
    return [*(detokenizer.feed(token) for token in ids), detokenizer.flush()]


def visible(tokenizer: Tokenizer, ids: Iterable[int], hidden: frozenset[int] = frozenset()) -> str:
    return tokenizer.decode([i for i in ids if i not in hidden], skip_special=False)


def byte_ids(tokenizer: Tokenizer, data: bytes) -> list[int]:
    ids = [tokenizer.token_id(f"<0x{byte:02X}>") for byte in data]
    if None in ids:
        alphabet = dict(zip(data, map(tokenizer_byte, data), strict=True))
        ids = [tokenizer.token_id(alphabet[byte]) for byte in data]
    assert None not in ids
    return [token for token in ids if token is not None]


def tokenizer_byte(byte: int) -> str:
    """The byte alphabet's letter, worked out apart from the code under test."""
    kept = [n for n in range(256) if 33 <= n <= 126 or 161 <= n <= 172 or n >= 174]
    if byte in kept:
        return chr(byte)
    return chr(256 + [n for n in range(256) if n not in kept].index(byte))


@pytest.mark.parametrize("name", [*BUILT, *ODD])
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_joined_stream_is_one_decode(
    tokenizers: dict[str, Tokenizer], name: str, data: st.DataObject
) -> None:
    tokenizer = tokenizers[name]
    some = st.one_of(
        st.integers(-3, tokenizer.vocab_size + 5), st.integers(0, 262), st.sampled_from([1, 2, 3])
    )
    ids = data.draw(st.lists(some, max_size=25))
    cut = data.draw(st.integers(0, len(ids)))
    hidden = data.draw(st.sampled_from([frozenset(), tokenizer.special_ids, frozenset([5, 6])]))
    detokenizer = Detokenizer(tokenizer, ids[:cut], hidden=hidden)
    streamed = "".join([detokenizer.feed(token) for token in ids[cut:]]) + detokenizer.flush()
    assert streamed == visible(tokenizer, ids, hidden)[len(detokenizer.prompt_text) :]
    shown = visible(tokenizer, ids[:cut], hidden)
    assert len(detokenizer.prompt_text) <= len(shown)
    assert "�" in shown or detokenizer.prompt_text == shown


@pytest.mark.parametrize("name", [*BUILT, *ODD])
def test_ids_without_an_entry_have_no_text(tokenizers: dict[str, Tokenizer], name: str) -> None:
    """Alone, they make the library's Strip look before the start of an empty text."""
    tokenizer = tokenizers[name]
    ids = [tokenizer.vocab_size + 1, tokenizer.vocab_size + 2]
    assert tokenizer.decode(ids) == "".join(stream(tokenizer, ids)) == ""


@pytest.mark.parametrize(
    "decoder",
    [
        decoders.Strip("b", 1, 1),
        decoders.Strip("b", 0, 2),
        decoders.Sequence([decoders.Fuse(), decoders.Strip("b", 1, 1)]),
    ],
)
def test_a_panic_of_the_library_is_an_error_with_a_name(tmp_path: Path, decoder: Decoder) -> None:
    """Its own exception is no Exception, and would end the program past every handler."""
    backend = Backend(models.WordLevel({"a": 0, "b": 1, "<unk>": 2}, unk_token="<unk>"))
    backend.decoder = decoder
    tokenizer = Tokenizer.load(save(backend, tmp_path))
    assert "".join(stream(tokenizer, [0])) == tokenizer.decode([0]) == "a"
    for broken in (tokenizer.decode, lambda ids: stream(tokenizer, ids)):
        with pytest.raises(TokenizerError, match="the tokenizers library breaks down in decoding"):
            broken([1])


def test_an_interrupt_in_decoding_stays_one() -> None:
    def interrupted(_: list[str]) -> str:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        decoded(interrupted, ["a"])


@pytest.mark.parametrize("name", BUILT)
def test_two_thousand_random_lists_never_raise(tokenizers: dict[str, Tokenizer], name: str) -> None:
    tokenizer = tokenizers[name]
    rng = random.Random(7)
    for _ in range(2000 // len(BUILT) + 1):
        ids = [
            rng.choice([rng.randrange(tokenizer.vocab_size), rng.randrange(262), -1, 10**9, 1])
            for _ in range(rng.randrange(40))
        ]
        assert "".join(stream(tokenizer, ids)) == visible(tokenizer, ids)


@pytest.mark.parametrize("name", ["byte_level", "stories"])
def test_emoji_of_four_tokens_comes_whole(tokenizers: dict[str, Tokenizer], name: str) -> None:
    tokenizer = tokenizers[name]
    letter = tokenizer.token_id("a")
    assert letter is not None
    pieces = stream(tokenizer, [*byte_ids(tokenizer, "😀".encode()), letter, letter])
    assert pieces[:3] == ["", "", ""]
    assert "".join(pieces[3:5]) == "😀a"
    assert pieces[5] == "a"
    family = "👨‍👩‍👧"
    assert "".join(stream(tokenizer, byte_ids(tokenizer, family.encode()))) == family


@pytest.mark.parametrize("name", ["byte_level", "stories"])
def test_cut_after_byte_two_is_flushed(tokenizers: dict[str, Tokenizer], name: str) -> None:
    tokenizer = tokenizers[name]
    ids = byte_ids(tokenizer, "😀".encode()[:2])
    pieces = stream(tokenizer, ids)
    assert pieces[:2] == ["", ""]
    assert pieces[2] == visible(tokenizer, ids) != ""
    assert set(pieces[2]) == {"�"}


@pytest.mark.parametrize("name", ["byte_level", "stories"])
def test_invalid_byte_does_not_stall_what_follows(
    tokenizers: dict[str, Tokenizer], name: str
) -> None:
    tokenizer = tokenizers[name]
    letter = tokenizer.token_id("a")
    assert letter is not None
    pieces = stream(tokenizer, [letter, *byte_ids(tokenizer, b"\xff"), letter, letter])
    assert pieces[2].endswith("�a") or (pieces[1] == "�" and pieces[2] == "a")
    assert pieces[3] == "a"


def test_genuine_replacement_token_is_not_held(tokenizers: dict[str, Tokenizer]) -> None:
    tokenizer = tokenizers["byte_level"]
    token = tokenizer.token_id("�")
    assert token is not None
    assert stream(tokenizer, [token])[0] == "�"


@pytest.mark.parametrize("name", ["byte_level", "stories"])
def test_border_of_prompt_and_answer_inside_a_character(
    tokenizers: dict[str, Tokenizer], name: str
) -> None:
    tokenizer = tokenizers[name]
    letter = tokenizer.token_id("a")
    assert letter is not None
    emoji = byte_ids(tokenizer, "é😀".encode())
    for cut in range(len(emoji) + 1):
        detokenizer = Detokenizer(tokenizer, [letter, *emoji[:cut]])
        pieces = [detokenizer.feed(token) for token in emoji[cut:]]
        whole = detokenizer.prompt_text + "".join(pieces) + detokenizer.flush()
        assert whole == "aé😀"
        assert "�" not in detokenizer.prompt_text


def test_spaces_follow_the_prompt_as_context(stories: Tokenizer) -> None:
    ids = stories.encode_raw("Once upon a time there", bos=True)
    for cut in range(1, len(ids)):
        hidden = stories.special_ids
        detokenizer = Detokenizer(stories, ids[:cut], hidden=hidden)
        text = "".join([detokenizer.feed(token) for token in ids[cut:]]) + detokenizer.flush()
        assert detokenizer.prompt_text + text == "Once upon a time there"
    hi, there = stories.token_id("▁h"), stories.token_id("▁there")
    assert hi is not None
    assert there is not None
    assert "".join(stream(stories, [hi, there])) == "h there"


def test_real_leading_spaces_survive(stories: Tokenizer) -> None:
    prompt = stories.encode_raw("a:\n")
    space = stories.token_id("▁")
    assert space is not None
    letter = stories.token_id("x")
    assert letter is not None
    assert "".join(stream(stories, [space] * 4 + [letter], prompt)) == "    x"


def test_twenty_thousand_tokens_in_linear_time(tokenizers: dict[str, Tokenizer]) -> None:
    for name in BUILT:
        tokenizer = tokenizers[name]
        rng = random.Random(3)
        ids = [rng.randrange(tokenizer.vocab_size) for _ in range(20_000)]
        start = time.process_time()
        text = "".join(stream(tokenizer, ids))
        assert time.process_time() - start < 1.0
        assert text == visible(tokenizer, ids)


def test_a_run_of_twenty_thousand_bytes_is_linear(stories: Tokenizer) -> None:
    ids = byte_ids(stories, "é".encode() * 10_000)
    start = time.process_time()
    assert "".join(stream(stories, ids)) == "é" * 10_000
    assert time.process_time() - start < 1.0


def test_hidden_and_shown_special_tokens(chatml: Tokenizer) -> None:
    think, start, stop = (chatml.token_id(t) for t in ("<think>", "<|im_start|>", "<|im_end|>"))
    letter = chatml.token_id("a")
    assert None not in (think, start, stop, letter)
    ids = [letter, think, letter, start, stop]
    for show, expected in ((False, "a<think>a"), (True, "a<think>a<|im_start|>")):
        hidden = hidden_ids(chatml, [stop], show_special=show)
        assert "".join(stream(chatml, ids, hidden=hidden)) == expected


def test_suffix_decoder_holds_only_one_piece(tmp_path) -> None:
    tokenizer = Tokenizer.load(save(word_suffix(), tmp_path))
    ids = tokenizer.encode_raw("the little girl")
    assert len(ids) >= 3
    pieces = stream(tokenizer, ids)
    assert "".join(pieces) == tokenizer.decode(ids)
    assert pieces[-2] != ""
