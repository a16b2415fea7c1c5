"""Devices and dtypes: what is refused by name, what auto takes and why, and the self-check."""

from __future__ import annotations

from unittest import mock

import pytest
import torch
from torch import Tensor

from llmcli.engine import device as subject
from llmcli.engine.device import attention_agrees, choose_device, choose_dtype
from llmcli.errors import LlmcliError, UsageError
from llmcli.model.attend import Visibility, attend

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    "asked", ["gpu", "", "CPU", "cuda:", "cuda:x", "cuda:-1", "cpu:0", "mps:0", "cuda:0:1", "meta"]
)
def test_unknown_device_is_a_usage_error(asked: str) -> None:
    with pytest.raises(UsageError) as caught:
        choose_device(asked)
    assert repr(asked) in caught.value.message


def test_cpu() -> None:
    assert choose_device("cpu") == (CPU, "asked for")


def test_cuda_that_is_not_there() -> None:
    with mock.patch("torch.cuda.is_available", return_value=False):
        for asked in ("cuda", "cuda:1"):
            with pytest.raises(LlmcliError, match=r"cuda:\d is not available"):
                choose_device(asked)


def test_cuda_index_beyond_the_last() -> None:
    with (
        mock.patch("torch.cuda.is_available", return_value=True),
        mock.patch("torch.cuda.device_count", return_value=2),
    ):
        assert choose_device("cuda:1")[0] == torch.device("cuda:1")
        with pytest.raises(LlmcliError, match=r"cuda:2 does not exist; there are 2"):
            choose_device("cuda:2")


def test_mps_that_is_not_there() -> None:
    with (
        mock.patch("torch.backends.mps.is_available", return_value=False),
        pytest.raises(LlmcliError, match="mps cannot be used"),
    ):
        choose_device("mps")


def _best(*, cuda: bool, mps: bool, problem: str | None = None) -> tuple[str, str]:
    with (
        mock.patch("torch.cuda.is_available", return_value=cuda),
        mock.patch("torch.cuda.get_device_name", return_value="a card"),
        mock.patch("torch.backends.mps.is_available", return_value=mps),
        mock.patch.object(subject, "mps_problem", return_value=problem),
    ):
        device, reason = choose_device("auto")
    return device.type, reason


def test_auto() -> None:
    assert _best(cuda=True, mps=True)[0] == "cuda"
    assert _best(cuda=False, mps=True)[0] == "mps"
    assert _best(cuda=False, mps=False)[0] == "cpu"
    kind, reason = _best(cuda=False, mps=True, problem="its attention gives wrong results")
    assert kind == "cpu"
    assert "its attention gives wrong results" in reason


def test_self_check_of_attention() -> None:
    """A fault as on MPS, wrong from 1024 keys on, is seen; right attention passes."""

    def wrong(q: Tensor, k: Tensor, v: Tensor, seen: Visibility, scale: float) -> Tensor:
        return attend(q, k[:, :, :1024], v[:, :, :1024], seen, scale)

    def swapped(q: Tensor, k: Tensor, v: Tensor, seen: Visibility, scale: float) -> Tensor:
        return attend(q[:, [0, 2, 1, 3]], k, v, seen, scale)

    assert attention_agrees(CPU)
    assert not attention_agrees(CPU, wrong)
    assert not attention_agrees(CPU, swapped)


@pytest.mark.parametrize("stored", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_dtype_asked_for(stored: torch.dtype) -> None:
    assert choose_dtype("float16", CPU, stored) == (torch.float16, "asked for")


@pytest.mark.parametrize(
    ("stored", "native", "chosen"),
    [
        (torch.float32, True, torch.float32),
        (torch.float64, True, torch.float32),
        (torch.bfloat16, True, torch.bfloat16),
        (torch.bfloat16, False, torch.float32),
        (torch.float16, True, torch.float32),
    ],
)
def test_auto_dtype_on_the_cpu(stored: torch.dtype, native: bool, chosen: torch.dtype) -> None:
    with mock.patch.object(subject, "_native_bfloat16", return_value=native):
        kind, reason = choose_dtype("auto", CPU, stored)
    assert kind == chosen
    assert reason.startswith("auto: ")


@pytest.mark.parametrize(
    ("stored", "has", "chosen"),
    [
        (torch.float16, True, torch.float16),
        (torch.bfloat16, True, torch.bfloat16),
        (torch.bfloat16, False, torch.float32),
        (torch.float32, True, torch.float32),
    ],
)
def test_auto_dtype_on_an_accelerator(stored: torch.dtype, has: bool, chosen: torch.dtype) -> None:
    with mock.patch.object(subject, "_has_bfloat16", return_value=has):
        assert choose_dtype("auto", torch.device("cuda"), stored)[0] == chosen
