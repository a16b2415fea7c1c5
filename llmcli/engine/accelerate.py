"""Whether a decoder's steps run in compiled kernels, and why not where they do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch

from llmcli.errors import UsageError
from llmcli.kernels.team import Team, missing
from llmcli.model import Decoder
from llmcli.model.fused import obstacle
from llmcli.plurals import counted
from llmcli.spec import DecoderSpec, count_parameters

KernelChoice = Literal["auto", "on", "off"]

# Importing the kernels takes about as long as torch needs for hundreds of steps of a smaller one.
_LEAST_PARAMETERS = 8_000_000


def start_kernels(
    choice: KernelChoice,
    spec: DecoderSpec,
    device: torch.device,
    dtype: torch.dtype,
    *,
    on_compile: Callable[[], None] | None = None,
) -> Team | str:
    """The threads that will run the kernels, which are being imported; or why there are none.

    Raises UsageError where they are asked for and cannot be had.
    """
    why = _refusal(device, dtype)
    if choice == "on" and why:
        raise UsageError(f"--kernels on cannot be had: {why}", hint="leave --kernels out")
    if choice == "off":
        return "switched off"
    if choice == "auto" and not why and count_parameters(spec) < _LEAST_PARAMETERS:
        why = "the model is small"
    return why or Team(torch.get_num_threads(), on_compile=on_compile)


def accelerate(decoder: Decoder, team: Team | str) -> str:
    """Let the decoder use the team; says what its steps of one token run in."""
    if isinstance(team, str):
        return f"torch ({team})"
    decoder.accelerate(team)
    held = str(decoder.embed_tokens.dtype or "packed").removeprefix("torch.")
    where = f"{counted(team.size, 'thread')}, weights {held}"
    if decoder.fused:
        return f"compiled kernels, {where}"
    why = obstacle(decoder.spec) or "how its weights are held"
    return f"torch, with compiled products ({why}), {where}"


def _refusal(device: torch.device, dtype: torch.dtype) -> str | None:
    if device.type != "cpu":
        return f"the device is {device.type}"
    if dtype != torch.float32:
        return f"it computes in {str(dtype).removeprefix('torch.')}"
    return missing()
