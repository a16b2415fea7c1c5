"""A talk with the real instruct model: each turn as transformers answers the same history."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.acquire.smollm2 import pulled_smollm2
from tests.cli.conftest import Invoke

GOLDEN: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "goldens" / "smollm2-chat.json").read_text(encoding="utf-8")
)
TURNS: list[dict[str, Any]] = GOLDEN["turns"]


@pytest.mark.parametrize("cache", ["--kv-cache", "--no-kv-cache"])
def test_the_transcript(invoke: Invoke, cache: str) -> None:
    model = str(pulled_smollm2())
    # Without a cache the last turn takes longer than all others together.
    turns = TURNS if cache == "--kv-cache" else TURNS[:-1]
    lines = "\n".join(turn["user"] for turn in turns).encode()
    args = ["chat", "-m", model, "--dtype", "float32", "-n", str(GOLDEN["max_new_tokens"])]
    result = invoke(*args, cache, stdin=lines, errors_terminal=True)
    assert result.code == 0
    assert result.out == "".join(turn["reply"] + "\n" for turn in turns)
    told = re.findall(r"kept (\d+), prefilled (\d+), new (\d+),", result.err)
    # Of every turn but the first all is kept but the new message: the end token was never fed.
    kept = [0] + [turn["prompt_tokens"] + turn["new_tokens"] - 1 for turn in turns[:-1]]
    if cache == "--no-kv-cache":
        kept = [0] * len(turns)
    assert [tuple(map(int, line)) for line in told] == [
        (have, turn["prompt_tokens"] - have, turn["new_tokens"])
        for have, turn in zip(kept, turns, strict=True)
    ]


def test_resumed_it_goes_on_the_same(invoke: Invoke) -> None:
    model = str(pulled_smollm2())
    args = ["chat", "-m", model, "--dtype", "float32"]
    first = invoke(*args, stdin=TURNS[0]["user"].encode())
    rest = "\n".join(turn["user"] for turn in TURNS[1:]).encode()
    second = invoke(*args, "--resume", stdin=rest)
    assert first.out + second.out == "".join(turn["reply"] + "\n" for turn in TURNS)
