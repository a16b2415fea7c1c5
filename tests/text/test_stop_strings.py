"""D10: stop strings over piece borders, against a plain search in the whole text."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmcli.errors import UsageError
from llmcli.text.stop_strings import StopStrings


def run(stops: list[str], pieces: list[str]) -> tuple[list[str], str | None]:
    watcher = StopStrings(stops)
    shown: list[str] = []
    for piece in pieces:
        text, hit = watcher.feed(piece)
        shown.append(text)
        if hit:
            return shown, watcher.matched
    return [*shown, watcher.flush()], watcher.matched


def search(stops: list[str], text: str) -> tuple[str, bool]:
    found = [text.find(stop) for stop in stops if stop in text]
    return (text[: min(found)], True) if found else (text, False)


@settings(max_examples=150, deadline=None)
@given(
    stops=st.lists(st.text("ab", min_size=1, max_size=5), max_size=4),
    pieces=st.lists(st.text("ab", max_size=4), max_size=12),
)
def test_any_pieces_give_what_a_search_of_the_whole_gives(
    stops: list[str], pieces: list[str]
) -> None:
    shown, matched = run(stops, pieces)
    text, hit = search(stops, "".join(pieces))
    assert "".join(shown) == text
    assert (matched is not None) == hit
    assert matched is None or "".join(pieces)[len(text) :].startswith(matched)


@settings(max_examples=60, deadline=None)
@given(
    stops=st.lists(st.text("ab", min_size=1, max_size=5), min_size=1, max_size=3),
    text=st.text("ab", max_size=20),
)
def test_nothing_is_held_that_cannot_match_any_more(stops: list[str], text: str) -> None:
    watcher = StopStrings(stops)
    shown = ""
    for end, char in enumerate(text, start=1):
        piece, hit = watcher.feed(char)
        if hit:
            break
        shown += piece
        rest = text[len(shown) : end]
        assert rest == "" or any(s.startswith(rest) or rest.startswith(s) for s in stops)


@pytest.mark.parametrize("size", [1, 2, 5, 50])
def test_stop_over_one_two_and_five_pieces(size: int) -> None:
    text = "ABC DEFGHIJ after"
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    shown, matched = run(["DEFGHIJ"], pieces)
    assert "".join(shown) == "ABC "
    assert matched == "DEFGHIJ"
    for end in range(len(shown)):
        assert "D" not in "".join(shown[:end])


def test_overlap_near_miss_and_order() -> None:
    assert run(["aab"], list("aaab")) == (["", "", "a", ""], "aab")
    assert "".join(run(["DEFG"], ["ABC DEF", "X"])[0]) == "ABC DEFX"
    assert "".join(run(["b", "ab"], ["xab"])[0]) == "x"
    assert "".join(run(["ab", "b"], ["xab"])[0]) == "x"


def test_held_text_comes_out_when_the_budget_ends() -> None:
    assert run(["DEFG"], ["ABC DEF"]) == (["ABC ", "DEF"], None)


def test_inner_stop_waits_for_the_outer_one() -> None:
    assert run(["abcd", "bc"], ["abc", "d"]) == (["", ""], "abcd")
    assert run(["abcd", "bc"], ["abc", "x"]) == (["", "a"], "bc")
    assert run(["abcd", "bc"], ["abc"]) == (["", "a"], "bc")


def test_after_a_hit_nothing_more_comes() -> None:
    watcher = StopStrings(["x"])
    assert watcher.feed("axb") == ("a", True)
    assert watcher.feed("more") == ("", True)
    assert watcher.flush() == ""


def test_empty_stop_string_is_refused() -> None:
    with pytest.raises(UsageError, match="empty"):
        StopStrings(["ok", ""])


def test_linear_time_on_the_worst_text() -> None:
    start = time.process_time()
    watcher = StopStrings(["a" * 2000 + "b"])
    for _ in range(100):
        watcher.feed("a" * 1000)
    assert watcher.flush() == "a" * 2000
    assert time.process_time() - start < 1.0
