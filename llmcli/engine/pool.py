"""SessionPool: the few caches of a conversation whose branches share what they have in common.

Must not know text, messages or templates: prompts are ids, turns are numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from llmcli.engine.session import Session

MOST_SESSIONS = 4
MOST_BYTES = 4 << 30


@dataclass(slots=True)
class _Slot:
    """`turn` is the one that the session's content ends with."""

    session: Session
    turn: int | None


class SessionPool:
    """A branch that goes on keeps its session; one that begins gets a copy of the nearest.

    At most `most` sessions of `most_bytes` together are held, one at least; the one that was
    not used for longest goes first.
    """

    def __init__(
        self,
        make: Callable[[], Session],
        *,
        most: int = MOST_SESSIONS,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self._make, self._most, self._most_bytes = make, most, most_bytes
        # The one used last stands last
        self._slots: list[_Slot] = []

    def take(self, ids: Sequence[int], *, after: int | None) -> Session:
        """The session to run a prompt in that follows turn `after`."""
        for slot in self._slots:
            # What a reply that outgrew the context has left was computed after tokens now gone
            if slot.session.cache is not None and slot.session.cache.dropped:
                slot.session = self._make()
        best = max(
            self._slots,
            key=lambda slot: (slot.session.reusable(ids), slot.turn == after),
            default=None,
        )
        if best is None or not (reused := best.session.reusable(ids)):
            chosen = self._spare(after) or self._new(after)
        elif best.turn == after or len(best.session.held) == reused:
            chosen = best
        else:
            chosen = self._fork(best, after)
        self._slots.remove(chosen)
        self._slots.append(chosen)
        return chosen.session

    def mark(self, session: Session, turn: int) -> None:
        """A turn has ended in this session."""
        for slot in self._slots:
            if slot.session is session:
                slot.turn = turn

    def forget_turns(self) -> None:
        """Turn numbers mean other turns from here on; what the caches hold stays of use."""
        for slot in self._slots:
            slot.turn = None

    def sizes(self) -> list[tuple[int, int]]:
        """Tokens and bytes of each session, the one used last first."""
        return [(len(one.session.held), _bytes(one.session)) for one in reversed(self._slots)]

    def _spare(self, after: int | None) -> _Slot | None:
        """A session that holds nothing that is still wanted."""
        for slot in self._slots:
            if slot.turn == after or not slot.session.held:
                slot.turn = after
                return slot
        return None

    def _new(self, after: int | None) -> _Slot:
        if len(self._slots) >= self._most:
            del self._slots[0]
        self._slots.append(_Slot(self._make(), after))
        return self._slots[-1]

    def _fork(self, origin: _Slot, after: int | None) -> _Slot:
        more = _bytes(origin.session)
        while not self._fits(more):
            if self._slots[0] is origin:
                origin.turn = after
                return origin
            del self._slots[0]
        self._slots.append(_Slot(origin.session.fork(), after))
        return self._slots[-1]

    def _fits(self, more: int) -> bool:
        held = sum(_bytes(slot.session) for slot in self._slots)
        return len(self._slots) < self._most and held + more <= self._most_bytes


def _bytes(session: Session) -> int:
    return session.cache.nbytes if session.cache is not None else 0
