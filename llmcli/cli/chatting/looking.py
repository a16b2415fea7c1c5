"""Slash commands that show what happened: statistics, tokens, candidates."""

from __future__ import annotations

import math

from llmcli.cli import terminal
from llmcli.cli.chatting.talk import Talk
from llmcli.cli.chatting.turns import meter_text, turn_line


def stats(talk: Talk, _: str) -> None:
    total = talk.totals
    if talk.last is not None:
        terminal.print_line(f"last turn: {turn_line(talk.last)}")
    terminal.print_line(
        f"{total.turns} turn{'s' * (total.turns != 1)} here: kept {total.kept}, "
        f"prefilled {total.prefilled}, new {total.new}"
    )
    held = talk.chat.caches()
    size = sum(size for _, size in held)
    caches = f"{len(held)} cache{'s' * (len(held) != 1)}"
    terminal.print_line(f"{meter_text(talk.chat.meter())}, {caches}, {size / 1e6:.1f} MB")


def tokens(talk: Talk, text: str) -> None:
    found = talk.chat.tokens(text)
    terminal.print_table(("ID", "TEXT"), [(str(number), repr(part)) for number, part in found])


def top(talk: Talk, _: str) -> None:
    rows = [
        (str(number), repr(text), f"{100 * math.exp(logprob):.2f}%", f"{logprob:.3f}")
        for number, text, logprob in talk.chat.top()
    ]
    terminal.print_table(("ID", "TEXT", "PROBABILITY", "LOGPROB"), rows)
