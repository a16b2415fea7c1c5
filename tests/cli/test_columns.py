"""Lines and tables that fit a width counted in cells, whatever the script."""

from __future__ import annotations

import pytest

from llmcli.cli.columns import Flow, broken, cells_wide, folded, pairs, table
from llmcli.plurals import counted

WORDS = "one two  three four five six seven eight nine ten eleven twelve"
HAN = "\u4ece\u524d\u6709\u5ea7\u5c71" * 12
MIXED = f"Once {HAN} upon a time \u304a\u306f\u3088\u3046 {HAN}"


@pytest.mark.parametrize("text", [WORDS, HAN, MIXED])
@pytest.mark.parametrize("width", [24, 31, 40, 79, 200])
@pytest.mark.parametrize(("first", "rest"), [("", ""), ("label: ", "  "), ("\u6ce8: ", "    ")])
def test_no_line_is_wider_and_nothing_is_lost(text: str, width: int, first: str, rest: str) -> None:
    lines = folded(text, width, first=first, rest=rest)
    assert all(cells_wide(line) <= width for line in lines)
    assert all(line.startswith(rest) for line in lines[1:])
    joined = "".join("".join(lines).split())
    assert joined == "".join((first + text).split())


def test_words_stay_whole_where_they_fit() -> None:
    lines = folded(WORDS, 20)
    assert [word for line in lines for word in line.split()] == WORDS.split()
    assert lines[0] == "one two  three four"


@pytest.mark.parametrize("width", [1, 2, 3])
def test_a_width_below_one_sign_ends(width: int) -> None:
    assert list(broken("\u4ece\u524d", width)) in (["\u4ece", "\u524d"], ["\u4ece\u524d"])


def test_nothing_is_broken_without_a_width() -> None:
    (line,) = folded(WORDS, None, first="a: ", rest="   ")
    assert isinstance(line, Flow)
    assert (line, line.indent) == (f"a: {WORDS}", 3)
    assert folded("a\nb\tc", None) == ["a b c"]


def test_pairs_and_tables_count_cells() -> None:
    assert pairs([("\u6ce8", "x"), ("abc", "y")], None) == ["\u6ce8   x", "abc  y"]
    assert table(("a", "b"), [("\u6ce8", "1")], 5) == ["a   b", "\u6ce8  1"]


def test_one_is_not_many() -> None:
    assert [counted(n, "token") for n in (0, 1, 2, 1024)] == [
        "0 tokens",
        "1 token",
        "2 tokens",
        "1,024 tokens",
    ]
