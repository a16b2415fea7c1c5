"""Short ways to make conversations."""

from __future__ import annotations

from typing import Any

from llmcli.chat.conversation import Conversation
from llmcli.chat.events import Begun
from llmcli.chat.turn import Said, Turn

TIME = "2026-01-02T03:04:05+00:00"


def begun(**changes: Any) -> Begun:
    return Begun(**{"time": TIME, "model": "m", "system": None, **changes})


def said(user: str, reply: str = "ok", **changes: Any) -> Said:
    given = {"ended": "stop", "time": TIME, "model": "m", "strategy": "greedy", **changes}
    return Said(user=user, reply=reply, **given)


def say(talk: Conversation, *users: str, **changes: Any) -> Turn:
    """Turns one after the other; the reply to "a" is "A"."""
    for user in users:
        talk.add(said(user, user.upper(), **changes), parent=talk.place.turn)
    assert talk.tip is not None
    return talk.tip


def users(talk: Conversation) -> str:
    """What was said on the path to the tip, joined."""
    return "".join(turn.said.user for turn in talk.path())
