"""What steps are said to run in is what they run in."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest
import torch

from llmcli.checkpoint.directory import ModelDir
from llmcli.engine.accelerate import KernelChoice
from llmcli.engine.foreseen import Steps
from llmcli.engine.load import load_decoder
from llmcli.errors import UsageError
from tests.families.rows import ROWS
from tests.oracle import build
from tests.tiny import tiny_spec

STORIES = Path(__file__).parents[2] / "weights" / "stories260k"
CPU, CUDA = torch.device("cpu"), torch.device("cuda")


@pytest.mark.parametrize("choice", get_args(KernelChoice))
def test_as_a_loaded_decoder_says(choice: KernelChoice, tmp_path: Path) -> None:
    (row,) = (row for row in ROWS if row.name == "mixtral-top-2")
    for folder in (STORIES, build(row, tmp_path).folder):
        loaded = load_decoder(ModelDir.open(folder), device="cpu", kernels=choice)
        steps = Steps(loaded.spec, CPU, choice)
        assert loaded.kernels.startswith(steps.told(torch.float32))
        assert bool(steps.most_tokens()) == loaded.decoder.fused


def test_other_dtypes_and_devices() -> None:
    spec = tiny_spec()
    asked = Steps(spec, CPU, "on")
    assert asked.in_kernels(torch.float32)
    assert not asked.in_kernels(torch.bfloat16)
    with pytest.raises(UsageError, match="--kernels on cannot be had: it computes in bfloat16"):
        asked.told(torch.bfloat16)
    cuda = Steps(spec, CUDA, "on")
    assert cuda.told(torch.bfloat16).startswith("torch, recorded as CUDA graphs")
    assert not cuda.in_kernels(torch.float32)
    assert cuda.most_tokens() == 0
