"""Findings: what a check says, one line each. Must not know what is checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "warning", "error"]


@dataclass(frozen=True, slots=True)
class Finding:
    """`about` is the thing looked at; names from files in `text` are escaped."""

    level: Level
    about: str
    text: str
