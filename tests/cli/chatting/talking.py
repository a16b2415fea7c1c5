"""A puppet to talk with, and a person at a terminal who does.

The prompt ends with the message's last character, which chooses the reply.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.cli.drive import Child
from tests.puppet import Added, Script, make_puppet

TEMPLATE = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}"
    "{% if m.role != 'user' or not loop.last %}<|end|>{% endif %}{% endfor %}"
)
ROLES = [Added("<|user|>"), Added("<|assistant|>"), Added("<|system|>")]
# What the terminal is told besides text: styles, movements, modes.
_SEQUENCE = re.compile(rb"\x1b(\[[0-9;?]*[A-Za-z]|[=>])")

# Written for what the editor tells the terminal once single keys reach it; before that, Ctrl-D
# would be lost.
_READY = "<ready>"

UP, ENTER, TAB, ALT_ENTER = b"\x1b[A", b"\r", b"\t", b"\x1b\r"
CTRL_C, CTRL_D = b"\x03", b"\x04"


def puppet(folder: Path, script: Script | Mapping[str, Script], **how: Any) -> str:
    """The folder of a puppet that can chat."""
    how = {"chat_template": TEMPLATE, "added": ROLES, **how}
    return str(make_puppet(folder / "model", script, **how).folder)


class Person:
    """Types at a terminal once the prompt is there, and waits for what appears.

    `edits` is false where the terminal gets plain lines and no editor.
    """

    def __init__(
        self,
        model: str,
        *args: str,
        env: Mapping[str, str] | None = None,
        setup: Callable[[], None] | None = None,
        stdout: str = "terminal",
        stderr: str = "terminal",
        edits: bool = True,
    ) -> None:
        self.child = Child(
            ["chat", "-m", model, *args],
            stdin="terminal",
            stdout=stdout,
            stderr=stderr,
            env=env,
            setup=setup,
        )
        self._read = 0
        self._edits = edits

    def __enter__(self) -> Person:
        self.child.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.child.__exit__(*error)

    @property
    def new(self) -> str:
        """What appeared since `mark`, without the terminal's own sequences."""
        return plain(self.child.seen[self._read :])

    def mark(self) -> None:
        self._read = len(self.child.seen)

    def sees(self, *texts: str) -> None:
        """Waits until all of them, in this order, have appeared since the last mark."""
        self.child.wait_until(lambda: _in_order(self.new, texts) or not self.child.alive)
        assert _in_order(self.new, texts), (texts, self.new)

    def prompted(self, *texts: str) -> None:
        """Waits for these and then for a prompt that takes keys, and marks what comes after it."""
        self.sees(*texts, *([_READY] if self._edits else []), "> ")
        self.mark()

    def types(self, keys: bytes) -> None:
        self.child.type(keys)

    def says(self, text: str, *seen: str) -> None:
        """Types a line, and waits for what must appear and for the next prompt."""
        self.mark()
        self.types(text.encode() + ENTER)
        self.prompted(*seen)

    def leaves(self, keys: bytes = CTRL_D, code: int = 0) -> None:
        self.types(keys)
        assert self.child.wait() == code, self.new
        assert self.child.terminal_restored


def plain(data: bytes) -> str:
    """What is seen of it, a little simplified."""
    marked = data.replace(b"\x1b[?2004h", _READY.encode())
    text = _SEQUENCE.sub(b"", marked).replace(b" \x08", b"").replace(b"\r", b"")
    return text.decode(errors="replace")


def _in_order(text: str, wanted: Sequence[str]) -> bool:
    at = 0
    for one in wanted:
        found = text.find(one, at)
        if found < 0:
            return False
        at = found + len(one)
    return True
