"""Conversation: a tree of turns, named branches, and the point from which it goes on.

Every change is an event; replaying the events gives the same conversation, so a file of events is
all that need be kept. Must not know files, tokens or models.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from llmcli.chat.events import Begun, Event, Moved, Spoken, is_branch_name
from llmcli.chat.turn import Place, Row, Said, Turn
from llmcli.errors import UsageError
from llmcli.text.chat_prompt import Message

FIRST_BRANCH = "main"
# More than any turn's number has, and few enough for int().
MOST_DIGITS = 18


class Conversation:
    """The system message belongs to the branch: the whole history is sent under the present one.

    A change of it holds from the next turn on. `undo`, `regen` and `edit` keep it; `goto` brings
    back the one that the turn was said under, or that the branch was left with.

    After each change `journal` is given all events; what it raises is passed on, and the change
    holds all the same.
    """

    def __init__(self, begun: Begun) -> None:
        self.begun = begun
        self.events: list[Event] = []
        self.turns: list[Turn] = []
        self.branches: dict[str, Place] = {FIRST_BRANCH: Place(system=begun.system)}
        self.branch: str | None = FIRST_BRANCH
        self.place = Place(system=begun.system)
        self.journal: Callable[[Sequence[Event]], None] | None = None

    @property
    def tip(self) -> Turn | None:
        """The turn that the next one follows."""
        return None if self.place.turn is None else self.turn(self.place.turn)

    @property
    def system(self) -> str | None:
        """The system message that the next turn is said under."""
        return self.place.system

    def turn(self, number: int) -> Turn:
        """Raises UsageError for a number that no turn has."""
        if not 1 <= number <= len(self.turns):
            known = f"1 to {len(self.turns)}" if self.turns else "no turn yet"
            raise UsageError(
                f"there is no turn {number}; there is {known}",
                hint="the tree lists every turn with its number",
            )
        return self.turns[number - 1]

    def path(self, end: int | None = None) -> tuple[Turn, ...]:
        """The turns that lead to turn `end`, it included; without `end`, to the tip."""
        at = self.place.turn if end is None else end
        found: list[Turn] = []
        while at is not None:
            found.append(self.turn(at))
            at = found[-1].parent
        return tuple(reversed(found))

    def add(self, said: Said, *, parent: int | None) -> Turn:
        """A new turn after turn `parent` (None: at the beginning), which becomes the tip."""
        if parent is not None:
            self.turn(parent)
        for name, text in (("message", said.user), ("reply", said.reply)):
            _check_text(name, text)
        self._do(Spoken(parent=parent, said=said))
        return self.turns[-1]

    def undo(self) -> Turn:
        """Step back before the last turn, which stays in the tree. Returns that turn."""
        last = self.tip
        if last is None:
            raise UsageError("there is no turn to undo", hint="nothing has been said yet here")
        self._move(Place(turn=last.parent, system=self.system), self.branch)
        return last

    def clear(self) -> None:
        """Go back to the beginning, under the present system message; the tree stays."""
        self._move(Place(system=self.system), self.branch)

    def set_system(self, text: str | None) -> None:
        """The system message from the next turn on; None has none, which "" is not."""
        if text is not None:
            _check_text("system message", text)
        self._move(Place(turn=self.place.turn, system=text), self.branch)

    def fork(self, name: str) -> None:
        """Begin the branch `name` here, and go on in it; the branch left keeps its place."""
        if not is_branch_name(name):
            raise UsageError(
                f"{name!r} cannot name a branch",
                hint="take printable characters, not all of them digits",
            )
        if name in self.branches:
            raise UsageError(f"there is a branch {name} already", hint=f"go to it: /goto {name}")
        self._move(self.place, name)

    def goto(self, where: str) -> None:
        """Go to the last turn of a branch, or to the turn of that number.

        A turn that no branch ends at is gone on from without a name, until `fork` gives one.
        """
        if where in self.branches:
            self._move(self.branches[where], where)
            return
        if not where.isdecimal() or len(where) > MOST_DIGITS:
            raise UsageError(
                f"there is no branch {where!r}; there are {', '.join(self.branches)}",
                hint="give one of these names, or a turn's number",
            )
        turn = self.turn(int(where))
        ends = [name for name, place in self.branches.items() if place.turn == turn.number]
        branch = self.branch if self.branch in ends else next(iter(ends), None)
        self._move(Place(turn=turn.number, system=turn.system), branch)

    def messages(
        self, *, parent: int | None, drop: int = 0, user: str | None = None
    ) -> list[Message]:
        """What a template is given: system, the turns up to `parent` but the first `drop`, `user`.

        Users and assistants alternate always: a turn has both, also one that was cut short.
        """
        found: list[Message] = []
        if self.system is not None:
            found.append(Message(role="system", content=self.system))
        history = () if parent is None else self.path(parent)
        for turn in history[drop:]:
            found.append(Message(role="user", content=turn.said.user))
            found.append(Message(role="assistant", content=turn.said.reply))
        if user is not None:
            found.append(Message(role="user", content=user))
        return found

    def tree(self) -> list[Row]:
        """Every turn, each after its parent, siblings in the order they were made."""
        children: dict[int | None, list[Turn]] = {}
        for turn in self.turns:
            children.setdefault(turn.parent, []).append(turn)
        ends: dict[int, list[str]] = {}
        for name, place in self.branches.items():
            if place.turn is not None:
                ends.setdefault(place.turn, []).append(name)
        on_path = {turn.number for turn in self.path()}
        rows: list[Row] = []
        first = children.get(None, [])
        left = [(turn, int(len(first) > 1)) for turn in reversed(first)]
        while left:
            turn, depth = left.pop()
            number = turn.number
            rows.append(
                Row(
                    turn=turn,
                    depth=depth,
                    forks=len(children[turn.parent]) > 1,
                    branches=tuple(ends.get(number, ())),
                    current=number == self.place.turn,
                    on_path=number in on_path,
                )
            )
            after = children.get(number, [])
            left += [(one, depth + (len(after) > 1)) for one in reversed(after)]
        return rows

    def apply(self, event: Event) -> None:
        """Let an event hold, without telling the journal. Raises ValueError if it cannot."""
        match event:
            case Spoken():
                self._known(event.parent)
                number = len(self.turns) + 1
                system = self.place.system
                self.turns.append(
                    Turn(number=number, parent=event.parent, system=system, said=event.said)
                )
                self._stand(Place(turn=number, system=system), self.branch)
            case Moved():
                self._known(event.place.turn)
                self._stand(event.place, event.branch)
        self.events.append(event)

    def _do(self, event: Event) -> None:
        self.apply(event)
        if self.journal is not None:
            self.journal(self.events)

    def _move(self, place: Place, branch: str | None) -> None:
        self._do(Moved(place=place, branch=branch))

    def _stand(self, place: Place, branch: str | None) -> None:
        self.place, self.branch = place, branch
        if branch is not None:
            self.branches[branch] = place

    def _known(self, number: int | None) -> None:
        if number is not None and not 1 <= number <= len(self.turns):
            raise ValueError(f"it follows turn {number}, and there are {len(self.turns)} turns")


def _check_text(name: str, text: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise UsageError(
            f"the {name} holds U+{ord(text[error.start]):04X} at character {error.start}, half of "
            "a surrogate pair",
            hint="the input was not valid UTF-8; convert it first",
        ) from error
