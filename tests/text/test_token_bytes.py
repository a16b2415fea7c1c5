"""The bytes of single ids: joined, they are what the tokenizer's own decoder makes of the ids."""

from __future__ import annotations

import random

import pytest
from text_builders import BUILT, ODD

from llmcli.errors import TokenizerError
from llmcli.text.token_bytes import bytes_of_pieces
from llmcli.text.tokenizer import Tokenizer

WITHOUT = {"word_suffix", "ctc", "strip end", "replace fused"}
WITH = [name for name in (*BUILT, *ODD) if name not in WITHOUT]


@pytest.mark.parametrize("name", WITH)
def test_joined_bytes_are_the_decoded_text(tokenizers: dict[str, Tokenizer], name: str) -> None:
    tokenizer = tokenizers[name]
    find = bytes_of_pieces(tokenizer.decoder)
    ordinary = [id_ for id_ in range(tokenizer.vocab_size) if id_ not in tokenizer.special_ids]
    draw = random.Random(3)
    start = tokenizer.encode_raw("a dog and", bos=False)
    compared = 0
    for _ in range(300):
        ids = draw.choices(ordinary, k=draw.randint(1, 6))
        joined = b"".join(find(tokenizer.piece(id_) or "") for id_ in ids)
        try:
            text = joined.decode()
        except UnicodeDecodeError:
            continue  # what broken bytes read as depends on their neighbours
        assert tokenizer.decode(start + ids) == tokenizer.decode(start) + text
        compared += 1
    assert compared > 30


def test_every_byte_of_a_character(tokenizers: dict[str, Tokenizer]) -> None:
    for name in ("byte_level", "stories"):
        tokenizer = tokenizers[name]
        find = bytes_of_pieces(tokenizer.decoder)
        ids = tokenizer.encode_raw("aé🙂\n", bos=False)
        joined = b"".join(find(tokenizer.piece(id_) or "") for id_ in ids)
        assert joined.decode().strip(" ") == "aé🙂\n"
        assert len(ids) > 5


@pytest.mark.parametrize("name", sorted(WITHOUT))
def test_decoders_without_are_refused(tokenizers: dict[str, Tokenizer], name: str) -> None:
    with pytest.raises(TokenizerError, match="does not give each token bytes of its own"):
        bytes_of_pieces(tokenizers[name].decoder)
