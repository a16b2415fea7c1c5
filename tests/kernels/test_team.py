"""Threads that run a kernel side by side, and what is left when one of them breaks off."""

from __future__ import annotations

import os
import signal
import threading
import time

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from llmcli.errors import LlmcliError
from llmcli.kernels import layout
from llmcli.kernels import team as teams
from llmcli.kernels.team import Team
from llmcli.model.job import Job
from llmcli.model.linear import Linear
from llmcli.model.matrices import describe


def held(weight: Tensor) -> Linear:
    linear = Linear(weight.shape[1], weight.shape[0], bias=False)
    linear.weight = nn.Parameter(weight, requires_grad=False)
    return linear


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
    waiting, ended = threading.Event(), threading.Event()

    def kernel(me: int, _team: int, _job: int) -> int:
        if me == 0:
            waiting.wait(10)
            raise KeyboardInterrupt
        waiting.set()
        while not team.barrier[layout.ABANDONED]:
            pass
        time.sleep(0.05)
        ended.set()
        return 1

    with pytest.raises(KeyboardInterrupt):
        team.run(kernel, 0)
    assert ended.is_set()
    seen: list[int] = []

    def next_kernel(me: int, _team: int, _job: int) -> int:
        seen.append(me)
        return int(team.barrier[layout.ABANDONED])

    team.run(next_kernel, 0)
    assert sorted(seen) == [0, 1]
    assert not team.barrier[layout.ABANDONED]


@pytest.mark.skipif(os.name == "nt", reason="a process there cannot send itself Ctrl-C alone")
@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("pressed", [1, 2])
def test_ctrl_c_is_heard_while_others_compute(size: int, pressed: int) -> None:
    team = Team(size)
    threads: set[int] = set()
    ended: list[int] = []
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    def kernel(me: int, _team: int, _job: int) -> int:
        threads.add(threading.get_ident())
        if me == 0:
            os.kill(os.getpid(), signal.SIGINT)
        while not team.barrier[layout.ABANDONED]:
            time.sleep(0.001)
        if me == 0 and pressed > 1:
            # Not even one who cannot wait may take away what is still written to.
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.05)
        ended.append(me)
        return 1

    try:
        with pytest.raises(KeyboardInterrupt):
            team.run(kernel, 0, aside=True)
        gone = len(ended)
    finally:
        signal.signal(signal.SIGINT, before)
    # Who had not begun yet stays away.
    time.sleep(0.05)
    assert 0 in ended
    assert gone == len(ended) == len(threads) <= size
    assert threading.get_ident() not in threads


def test_a_product_ends_when_abandoned() -> None:
    kernels, job = Team(1).kernels, Job()
    barrier = np.zeros(layout.BARRIER_SIZE, np.int64)
    weight = torch.ones(40, 16)
    described = describe(held(weight), None)
    assert described is not None
    job.give(layout.BARRIER, barrier)
    job.give(layout.MATRIX, np.array(described.numbers, np.int64))
    job.room(layout.X, 3, 16).fill_(1)
    job.room(layout.SCRATCH, 1, described.room)
    y = job.room(layout.Y, 3, 40)
    job.say(layout.COUNT, 3)
    barrier[layout.ABANDONED] = 1
    kernels.product(0, 1, job.address)
    assert not y.any()
    barrier[layout.ABANDONED] = 0
    kernels.product(0, 1, job.address)
    assert (y[:, :40] == 16).all()


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
