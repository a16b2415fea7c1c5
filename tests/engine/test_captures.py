"""Steps on CUDA are recorded only after a few were right; a tape stands in for the device."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from llmcli.engine.accelerate import accelerate, start_kernels
from llmcli.errors import LlmcliError, UsageError
from llmcli.model import Decoder
from llmcli.model.captured import CudaGraphs, Work
from llmcli.spec import LayerSpec
from tests.tape import Recorder
from tests.tiny import random_decoder, tiny_spec

CUDA = torch.device("cuda")


@pytest.fixture
def decoder() -> Decoder:
    return random_decoder(dtype=torch.float32)


def _captures(decoder: Decoder) -> bool:
    return decoder._captured is not None


def test_cuda_gets_graphs_where_a_step_can_be_captured() -> None:
    spec = tiny_spec()
    recurrent = replace(spec, layers=(LayerSpec(mixer="gated_delta"),))
    for choice in ("auto", "on"):
        assert isinstance(start_kernels(choice, spec, CUDA, torch.bfloat16), CudaGraphs)
    assert start_kernels("off", spec, CUDA, torch.bfloat16) == "switched off"
    assert start_kernels("auto", recurrent, CUDA, torch.bfloat16) == "recurrent layers"
    with pytest.raises(UsageError, match="--kernels on cannot be had: recurrent layers"):
        start_kernels("on", recurrent, CUDA, torch.bfloat16)


def test_right_steps_are_kept(decoder: Decoder) -> None:
    recorder = Recorder()
    assert accelerate(decoder, recorder).startswith("torch, recorded as CUDA graphs")
    assert _captures(decoder)
    assert recorder.played == 3


def _wrong(work: Work) -> Work:
    return lambda: work().roll(1, -1)


def _stuck(work: Work) -> Work:
    """The first result again and again, as a graph does whose inputs are not where they were."""
    out = work()
    return lambda: out


def _failing(work: Work) -> Callable[[], Tensor]:
    raise RuntimeError("operation not permitted when stream is capturing\nmore")


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (_wrong, "recorded steps are off by"),
        (_stuck, "recorded steps are off by"),
        (_failing, "recording a step failed: operation not permitted when stream is capturing"),
    ],
)
def test_other_steps_are_not(decoder: Decoder, record, why: str) -> None:
    ids = torch.tensor([[1, 2, 3]])
    before = decoder(ids)
    said = accelerate(decoder, record)
    assert said.startswith(f"torch ({why}")
    assert "more" not in said
    assert not _captures(decoder)
    assert decoder._watchers == 0
    assert torch.equal(decoder(ids), before)
    with pytest.raises(LlmcliError, match=why):
        accelerate(decoder, record, required=True)


def test_a_context_too_short_to_try_in_is_named() -> None:
    decoder = random_decoder(tiny_spec(max_position_embeddings=8))
    assert accelerate(decoder, Recorder()) == "torch (the context is short)"


def test_torch_takes_the_arguments_that_a_recording_gives() -> None:
    inspect.signature(torch.cuda.graph).bind(None, pool=(0, 0), stream=None)
    inspect.signature(torch.cuda.CUDAGraph).bind()
    assert callable(torch.cuda.CUDAGraph.replay)


def test_a_graph_is_filled_once_and_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    """With torch's own calls stood in for: their order, since no device is there."""
    told: list[str] = []

    class Graph:
        def replay(self) -> None:
            told.append("replay")

    @contextmanager
    def graph(made: Graph, *, pool: object, stream: object) -> Iterator[None]:
        told.append(f"begin in {pool}")
        yield
        told.append("end")

    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: "pool")
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "Stream", object)
    monkeypatch.setattr(torch.cuda, "graph", graph)
    monkeypatch.setattr(torch.cuda, "device", lambda _device: nullcontext())
    out = torch.ones(1)

    def work() -> Tensor:
        told.append("work")
        return out

    play = CudaGraphs(CUDA)(work)
    assert told == ["begin in pool", "work", "end"]
    assert play() is out
    assert play() is out
    assert told[3:] == ["replay", "replay"]
