"""Threads that run a kernel side by side, and what is left when one of them breaks off."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from llmcli.errors import LlmcliError
from llmcli.kernels import layout
from llmcli.kernels import team as teams
from llmcli.kernels.team import Team
from llmcli.model.job import Job


@pytest.mark.parametrize("size", [1, 2, 5])
def test_every_member_runs_once(size: int) -> None:
    seen: list[tuple[int, int, int]] = []

    def kernel(*told: int) -> int:
        seen.append(told)
        return 0

    Team(size).run(kernel, 7)
    assert sorted(seen) == [(me, size, 7) for me in range(size)]


def test_an_error_of_a_member_is_raised_once_all_are_done() -> None:
    done = threading.Event()

    def kernel(me: int, _team: int, _job: int) -> int:
        if me == 1:
            raise ValueError("member 1")
        done.set()
        return 0

    with pytest.raises(ValueError, match="member 1"):
        Team(2).run(kernel, 0)
    assert done.is_set()


def test_ctrl_c_sends_home_those_who_wait() -> None:
    team = Team(2)
    waiting = threading.Event()

    def kernel(me: int, _team: int, _job: int) -> int:
        if me == 0:
            waiting.wait(10)
            raise KeyboardInterrupt
        waiting.set()
        while not team.barrier[layout.ABANDONED]:
            pass
        return 1

    with pytest.raises(KeyboardInterrupt):
        team.run(kernel, 0)
    seen: list[int] = []

    def next_kernel(me: int, _team: int, _job: int) -> int:
        seen.append(me)
        return 0

    team.run(next_kernel, 0)
    assert sorted(seen) == [0, 1]


@pytest.mark.parametrize("name", ["step", "several"])
def test_a_step_whose_member_never_comes_ends_when_abandoned(name: str) -> None:
    kernels, job = Team(1).kernels, Job()
    barrier = np.zeros(layout.BARRIER_SIZE, np.int64)
    barrier[layout.ABANDONED] = 1
    facts = np.zeros(layout.FACTS, np.int64)
    facts[:5] = 1  # one layer of one head of one number
    job.say(layout.COUNT, 1, 1)
    job.give(layout.BARRIER, barrier)
    job.give(layout.SHARED_FACTS, facts)
    job.give(layout.SHARED_REALS, np.zeros(layout.REALS, np.float32))
    job.give(layout.TABLES, np.zeros((1, layout.TABLE), np.int64))
    job.give(layout.PLACES, np.zeros((1, layout.PLACE), np.int64))
    for field in range(int(layout.STREAM), layout.JOB):
        job.room(field, 2, 16)
    # Of two members only the first comes.
    assert getattr(kernels, name)(0, 2, job.address) == 1


def test_what_loading_raises_comes_out_where_kernels_are_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(**_: object) -> None:
        raise OSError("no room")

    monkeypatch.setattr(teams, "load", fail)
    with pytest.raises(LlmcliError, match="OSError: no room") as error:
        _ = Team(1).kernels
    assert "--kernels off" in str(error.value.hint)
