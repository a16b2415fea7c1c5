"""The tree of turns: where each operation leads, and what a template is given."""

from __future__ import annotations

import pytest

from llmcli.chat.conversation import Conversation
from llmcli.errors import UsageError
from tests.chat.talk import begun, said, say, users


@pytest.fixture
def talk() -> Conversation:
    made = Conversation(begun(system="S"))
    say(made, "a", "b", "c")
    return made


def shape(talk: Conversation) -> list[str]:
    return [
        "  " * row.depth
        + f"{row.turn.number}{row.turn.said.user}"
        + ("*" if row.current else "." if row.on_path else "")
        + "".join(f" {name}" for name in row.branches)
        for row in talk.tree()
    ]


def test_turns_follow_each_other(talk: Conversation) -> None:
    assert users(talk) == "abc"
    assert [turn.parent for turn in talk.turns] == [None, 1, 2]
    assert shape(talk) == ["1a.", "2b.", "3c* main"]


def test_undo_leaves_the_turn_in_the_tree(talk: Conversation) -> None:
    assert talk.undo().number == 3
    assert users(talk) == "ab"
    say(talk, "d")
    assert users(talk) == "abd"
    assert shape(talk) == ["1a.", "2b.", "  3c", "  4d* main"]
    talk.goto("3")
    assert users(talk) == "abc"
    for _ in range(3):
        talk.undo()
    assert users(talk) == ""
    with pytest.raises(UsageError, match="no turn to undo"):
        talk.undo()


def test_a_sibling_of_an_earlier_turn(talk: Conversation) -> None:
    talk.add(said("B"), parent=1)
    assert users(talk) == "aB"
    talk.add(said("A"), parent=None)
    assert users(talk) == "A"
    assert shape(talk) == ["  1a", "    2b", "    3c", "    4B", "  5A* main"]


def test_branches_keep_their_place(talk: Conversation) -> None:
    talk.fork("other")
    say(talk, "x")
    talk.goto("main")
    say(talk, "y")
    assert (users(talk), talk.branch) == ("abcy", "main")
    talk.goto("other")
    assert (users(talk), talk.branch) == ("abcx", "other")
    assert shape(talk) == ["1a.", "2b.", "3c.", "  4x* other", "  5y main"]
    talk.goto("5")
    assert talk.branch == "main"
    talk.goto("2")
    assert talk.branch is None
    say(talk, "z")
    assert (users(talk), talk.branch) == ("abz", None)
    assert talk.branches["main"].turn == 5


def test_a_branch_from_the_beginning(talk: Conversation) -> None:
    talk.clear()
    assert (users(talk), talk.system) == ("", "S")
    talk.fork("new")
    say(talk, "n")
    talk.goto("main")
    assert users(talk) == ""


def test_the_system_message_is_the_branchs(talk: Conversation) -> None:
    talk.fork("other")
    talk.set_system("T")
    say(talk, "x")
    assert [message["content"] for message in talk.messages(parent=4)][:2] == ["T", "a"]
    talk.undo()
    assert talk.system == "T"
    talk.goto("main")
    assert talk.system == "S"
    talk.goto("4")
    assert talk.system == "T"
    talk.set_system(None)
    assert talk.messages(parent=4)[0]["role"] == "user"
    talk.set_system("")
    assert talk.messages(parent=4)[0] == {"role": "system", "content": ""}


def test_users_and_assistants_alternate(talk: Conversation) -> None:
    talk.undo()
    talk.add(said("d", "", ended="cut"), parent=2)
    roles = [m["role"] for m in talk.messages(parent=talk.place.turn, user="e")]
    assert roles == ["system", *["user", "assistant"] * 3, "user"]
    left = [m["content"] for m in talk.messages(parent=talk.place.turn, user="e", drop=2)]
    assert left == ["S", "d", "", "e"]


@pytest.mark.parametrize(
    ("do", "message"),
    [
        (lambda talk: talk.goto("nowhere"), "no branch 'nowhere'; there are main"),
        (lambda talk: talk.goto("4"), "there is no turn 4; there is 1 to 3"),
        (lambda talk: talk.goto("0"), "there is no turn 0"),
        (lambda talk: talk.goto(""), "no branch ''"),
        (lambda talk: talk.goto("9" * 5000), "no branch '999"),
        (lambda talk: talk.fork("main"), "a branch main already"),
        (lambda talk: talk.fork("12"), "'12' cannot name a branch"),
        (lambda talk: talk.fork("a\x1b"), "cannot name a branch"),
        (lambda talk: talk.fork(""), "cannot name a branch"),
        (lambda talk: talk.add(said("x"), parent=7), "there is no turn 7"),
        (lambda talk: talk.add(said("\ud800"), parent=None), r"message holds U\+D800"),
        (lambda talk: talk.set_system("\udfff"), r"system message holds U\+DFFF"),
    ],
)
def test_mistakes_change_nothing(talk: Conversation, do: object, message: str) -> None:
    before = list(talk.events)
    with pytest.raises(UsageError, match=message):
        do(talk)  # type: ignore[operator]
    assert talk.events == before


def test_the_same_events_make_the_same_tree(talk: Conversation) -> None:
    talk.fork("other")
    talk.set_system("T")
    say(talk, "x")
    talk.goto("2")
    say(talk, "y")
    again = Conversation(talk.begun)
    for event in talk.events:
        again.apply(event)
    assert (again.tree(), again.branches, again.place, again.branch) == (
        talk.tree(),
        talk.branches,
        talk.place,
        talk.branch,
    )


def test_a_long_conversation_needs_no_deep_stack() -> None:
    talk = Conversation(begun())
    say(talk, *["a"] * 3000)
    assert len(talk.tree()) == len(talk.path()) == 3000
