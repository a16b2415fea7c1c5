"""Control codes made visible, whole and in pieces cut anywhere."""

from __future__ import annotations

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from llmcli.cli.control_codes import ControlCodes, visible, visible_line

ALPHABET = "a\r\n\t\x1b\x07\x08\x7f\x9b\x85é🙂]"


def test_only_newline_and_tab_pass() -> None:
    every = "".join(map(chr, range(0x300)))
    left = {char for char in visible(every) if unicodedata.category(char) == "Cc"}
    assert left == {"\n", "\t"}
    assert not any(unicodedata.category(char) == "Cc" for char in visible_line(every))
    assert visible("plain é 🙂 [x]") == "plain é 🙂 [x]"


@given(st.lists(st.text(ALPHABET, max_size=6), max_size=8))
def test_pieces_are_as_the_whole(pieces: list[str]) -> None:
    codes = ControlCodes()
    shown = "".join([*(codes.feed(piece) for piece in pieces), codes.flush()])
    assert shown == visible("".join(pieces).replace("\r\n", "\n"))
    assert codes.flush() == ""


def test_only_a_carriage_return_is_held() -> None:
    codes = ControlCodes()
    assert codes.feed("a\x1b") == "a␛"
    assert codes.feed("b\r") == "b"
    assert codes.feed("\n") == "\n"
