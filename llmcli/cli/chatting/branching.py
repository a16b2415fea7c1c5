"""Slash commands that move in the tree of turns, and what is said at its root."""

from __future__ import annotations

from llmcli.chat.conversation import MOST_DIGITS
from llmcli.cli import terminal
from llmcli.cli.chatting.talk import Talk
from llmcli.cli.chatting.turns import beginning, take_turn
from llmcli.errors import UsageError

# `/system -` takes the system message away.
NOTHING = "-"


def clear(talk: Talk, _: str) -> None:
    talk.chat.conversation.clear()
    talk.waiting.clear()
    tell(talk, "the next message begins anew; /tree shows what was said before")


def system(talk: Talk, text: str) -> None:
    if not text:
        present = talk.chat.conversation.system
        terminal.note("no system message" if present is None else f"system: {present}")
        return
    talk.chat.set_system(None if text == NOTHING else text)
    tell(talk, "system message " + ("taken away" if text == NOTHING else "set"))


def regen(talk: Talk, _: str) -> None:
    take_turn(talk, talk.chat.prepare_again())


def undo(talk: Talk, _: str) -> None:
    turn = talk.chat.conversation.undo()
    tell(talk, f"turn {turn.number} {beginning(turn.said.user)!r} is taken back")


def edit(talk: Talk, argument: str) -> None:
    turn = talk.chat.conversation.turn(_number(argument))
    talk.editing = turn.number
    talk.draft = turn.said.user if talk.reader.interactive else ""
    tell(talk, f"the next message stands in place of turn {turn.number}; an empty one cancels")


def fork(talk: Talk, name: str) -> None:
    talk.chat.conversation.fork(name)
    tell(talk, f"on branch {name}")


def goto(talk: Talk, where: str) -> None:
    conversation = talk.chat.conversation
    conversation.goto(where)
    tip = conversation.tip
    at = "the beginning" if tip is None else f"turn {tip.number} {beginning(tip.said.user)!r}"
    tell(
        talk, f"at {at}, " + (f"branch {conversation.branch}" if conversation.branch else "unnamed")
    )


def tree(talk: Talk, _: str) -> None:
    rows = talk.chat.conversation.tree()
    if not rows:
        tell(talk, "nothing has been said yet")
    for row in rows:
        mark = "*" if row.current else "+" if row.on_path else " "
        names = f"  [{', '.join(row.branches)}]" if row.branches else ""
        cut = "  (cut)" if row.turn.said.ended == "cut" else ""
        # A dash begins each sibling; what goes on from one is indented alike, without a dash
        indent = "  " * (row.depth - 1) + "- " if row.forks else "  " * row.depth
        text = f"{indent}{row.turn.number} {beginning(row.turn.said.user, 50)}"
        terminal.print_line(f"{mark} {text}{cut}{names}")


def tell(talk: Talk, line: str) -> None:
    """What a command did, for whoever watches."""
    if not talk.quiet and terminal.shows_notices():
        terminal.note(line)


def _number(argument: str) -> int:
    if not argument.isdecimal() or len(argument) > MOST_DIGITS:
        raise UsageError(
            f"{beginning(argument)!r} is not a turn's number",
            hint="/tree lists the turns with their numbers",
        )
    return int(argument)
