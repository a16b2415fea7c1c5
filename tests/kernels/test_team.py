"""Threads that run a kernel side by side, and what is left when one of them breaks off."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llmcli.errors import LlmcliError
from llmcli.kernels import team as teams
from llmcli.kernels.team import Team, cache_home


@pytest.mark.parametrize("size", [1, 2, 5])
def test_every_member_runs_once(size: int) -> None:
    seen: list[tuple[int, int, str]] = []
    Team(size).run(lambda me, team, word: seen.append((me, team, word)), "x")
    assert sorted(seen) == [(me, size, "x") for me in range(size)]


def test_an_error_of_a_member_is_raised_once_all_are_done() -> None:
    done = threading.Event()

    def kernel(me: int, _team: int) -> int:
        if me == 1:
            raise ValueError("member 1")
        done.set()
        return 0

    with pytest.raises(ValueError, match="member 1"):
        Team(2).run(kernel)
    assert done.is_set()


def test_ctrl_c_sends_home_those_who_wait() -> None:
    team = Team(2)
    barrier = team.barrier
    waiting = threading.Event()

    def kernel(me: int, _team: int) -> int:
        if me == 0:
            waiting.wait(10)
            raise KeyboardInterrupt
        waiting.set()
        while not barrier[teams.ABANDONED]:
            pass
        return 1

    with pytest.raises(KeyboardInterrupt):
        team.run(kernel)
    seen: list[int] = []
    team.run(lambda me, _team: seen.append(me))
    assert sorted(seen) == [0, 1]


def test_a_step_whose_member_never_comes_ends_when_abandoned() -> None:
    kernels: Any = Team(1).kernels
    barrier = kernels.new_barrier()
    assert teams.ABANDONED == kernels.steps.ABANDONED
    barrier[teams.ABANDONED] = 1
    facts, rows = np.zeros(11, np.int64), np.zeros((2, 1), np.float32)
    facts[:5] = 1
    tables = np.zeros((1, kernels.steps.TABLE), np.int64)
    places = np.zeros((1, kernels.steps.PLACE), np.int64)
    row, inner = rows[0], np.zeros((3, 1), np.float32)
    shared, own = (row, row, inner, rows, rows, rows), (rows, rows, rows, rows, rows)
    reals = np.zeros(5, np.float32)
    # Of two members only the first comes.
    assert kernels.step(0, 2, barrier, facts, reals, tables, places, row, shared, own) == 1


def test_machine_code_of_long_unused_versions_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(teams.platformdirs, "user_cache_path", lambda _name: tmp_path)
    home = cache_home()
    for age in range(9):
        folder = home.parent / f"version {age}"
        folder.mkdir(parents=True)
        os.utime(folder, (age, age))
    Team(1).kernels.new_barrier()
    left = {one.name for one in home.parent.iterdir()} - {home.name}
    assert left == {f"version {age}" for age in range(5, 9)}


def test_compiling_is_told_where_nothing_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(teams.platformdirs, "user_cache_path", lambda _name: tmp_path)
    told: list[bool] = []
    Team(1, on_compile=lambda: told.append(True)).kernels.new_barrier()
    assert told == [True]
    kept = cache_home() / "step.nbc"
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_bytes(b"")
    Team(1, on_compile=lambda: told.append(True)).kernels.new_barrier()
    assert told == [True]


def test_what_compiling_raises_comes_out_where_kernels_are_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail() -> Path:
        raise OSError("no room")

    monkeypatch.setattr(teams, "cache_home", fail)
    with pytest.raises(LlmcliError, match="OSError: no room") as error:
        _ = Team(1).kernels
    assert "--kernels off" in str(error.value.hint)
