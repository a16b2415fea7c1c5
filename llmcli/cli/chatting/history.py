"""The lines typed in earlier sessions, in a file that only its owner can read.

One JSON string a line, so that a message of several lines is one entry. A file that cannot be
read or written costs the history, never the conversation.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

from llmcli.acquire.places import home

# Older lines are dropped, so that the file stays small.
_MOST = 1000


def history_file() -> Path:
    """Where it is kept."""
    return home() / "chat_history"


def read_history() -> list[str]:
    """The lines kept, oldest first; lines that are damaged are left out."""
    try:
        lines = history_file().read_bytes().splitlines()
    except OSError:
        return []
    found = []
    for line in lines[-_MOST:]:
        with contextlib.suppress(ValueError, RecursionError):
            value = json.loads(line)
            if isinstance(value, str):
                found.append(value)
    if len(lines) > 2 * _MOST:
        _write("".join(_line(text) for text in found), os.O_TRUNC)
    return found


def add_to_history(text: str) -> None:
    """Keep one more line."""
    _write(_line(text), os.O_APPEND)


def _line(text: str) -> str:
    return json.dumps(text) + "\n"


def _write(text: str, how: int) -> None:
    path = history_file()
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        number = os.open(path, os.O_WRONLY | os.O_CREAT | how, 0o600)
        with os.fdopen(number, "wb") as file:
            file.write(text.encode())
