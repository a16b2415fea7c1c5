"""Reasoning told from the answer, however the text is cut into pieces."""

from __future__ import annotations

import pytest

from llmcli.cli.chatting.reasoning import Part, Reasoning
from llmcli.text.thought_marks import THOUGHT_MARKS

Told = list[tuple[str, bool]]


def told(reasoning: Reasoning, pieces: list[str]) -> Told:
    parts = [part for piece in pieces for part in reasoning.feed(piece)] + reasoning.flush()
    joined: list[Part] = []
    for part in parts:
        if joined and joined[-1].reasoning == part.reasoning:
            joined[-1] = Part(joined[-1].text + part.text, part.reasoning)
        else:
            joined.append(part)
    return [tuple(part) for part in joined]


CASES = [
    ("", "plain", [("plain", False)]),
    ("", "<think>a</think>\n\nb", [("<think>a</think>", True), ("\n\nb", False)]),
    (
        "",
        "x <think>a</think>b<think>c</think>",
        [("x ", False), ("<think>a</think>", True), ("b", False), ("<think>c</think>", True)],
    ),
    ("", "<think>never closed", [("<think>never closed", True)]),
    ("", "a <thin", [("a <thin", False)]),
    ("", "a < b <thing> c", [("a < b <thing> c", False)]),
    ("", "<<think>a</think>", [("<", False), ("<think>a</think>", True)]),
    ("", "<think>a</thinking></think>b", [("<think>a</thinking></think>", True), ("b", False)]),
    ("", "</think> b", [("</think> b", False)]),
    # Some templates open the reasoning themselves.
    ("<|assistant|><think>\n", "a</think>b", [("a</think>", True), ("b", False)]),
    ("say <think> please", "a", [("a", False)]),
]


@pytest.mark.parametrize(("prompt", "text", "expected"), CASES)
def test_at_every_cut(prompt: str, text: str, expected: Told) -> None:
    assert told(Reasoning(prompt), list(text)) == expected
    for at in range(len(text) + 1):
        assert told(Reasoning(prompt), [text[:at], text[at:]]) == expected


@pytest.mark.parametrize(("opening", "closing"), THOUGHT_MARKS.items())
def test_every_pair_of_marks(opening: str, closing: str) -> None:
    text = f"{opening}a{closing}b"
    assert told(Reasoning(), list(text)) == [(f"{opening}a{closing}", True), ("b", False)]


def test_only_what_may_be_a_mark_is_held_back() -> None:
    reasoning = Reasoning()
    assert reasoning.feed("a <th") == [Part("a ", reasoning=False)]
    assert reasoning.feed("e") == [Part("<the", reasoning=False)]
    assert not reasoning.open
    reasoning.feed("<think>")
    assert reasoning.open
