"""What a decoder's steps run in: compiled kernels on a CPU, recorded graphs on CUDA, or plain torch
and why.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Literal

import torch

from llmcli.engine.captures import capture
from llmcli.errors import LlmcliError, UsageError
from llmcli.kernels.code import missing
from llmcli.kernels.team import Team
from llmcli.model import Decoder
from llmcli.model.captured import CudaGraphs, Record, uncapturable
from llmcli.model.fused import obstacle
from llmcli.model.linear import Weighted
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
) -> Team | Record | str:
    """The threads that will run the kernels, which are being imported, or what records steps on
    CUDA; or why there are none.

    Raises UsageError where they are asked for and cannot be had.
    """
    why = why_none(choice, spec, device, dtype)
    if not why and device.type == "cuda":
        return CudaGraphs(device)
    return why or Team(torch.get_num_threads(), on_compile=on_compile)


def why_none(
    choice: KernelChoice, spec: DecoderSpec, device: torch.device, dtype: torch.dtype
) -> str | None:
    """Why there would be no kernels, or on CUDA no recorded steps; None where there would be.

    Raises as `start_kernels`.
    """
    if device.type == "cuda":
        return _settle(choice, uncapturable(spec))
    why = _settle(choice, _refusal(device, dtype))
    if choice == "auto" and not why and count_parameters(spec) < _LEAST_PARAMETERS:
        why = "the model is small"
    return why


def accelerate(decoder: Decoder, team: Team | Record | str, *, required: bool = False) -> str:
    """Let the decoder use the team; says what its steps of one token run in.

    Raises LlmcliError where recorded steps are `required` and turn out to be impossible.
    """
    held = _held(decoder)
    packed = f", weights {held}" if "packed" in held else ""
    if isinstance(team, str):
        return f"torch ({team}){packed}"
    if not isinstance(team, Team):
        why = capture(decoder, team)
        if why and required:
            raise LlmcliError(f"--kernels on cannot be had: {why}", hint="leave --kernels out")
        return (
            f"torch ({why})"
            if why
            else "torch, recorded as CUDA graphs (caches growing, ring, static)"
        ) + packed
    decoder.accelerate(team)
    where = f"{counted(team.size, 'thread')}, weights {held}"
    if why := lacking(decoder):
        return f"torch, with compiled products ({why}), {where}"
    return f"compiled kernels, {where}"


def lacking(decoder: Decoder) -> str | None:
    """Why whole steps of an accelerated decoder do not run in kernels; None where they do."""
    return None if decoder.fused else obstacle(decoder.spec) or "how its weights are held"


def _held(decoder: Decoder) -> str:
    """What the matrices are held in, the commonest by its bytes first."""
    sizes: Counter[str] = Counter()
    for module in decoder.modules():
        if isinstance(module, Weighted) and module.owns:
            sizes[str(module.dtype or "packed").removeprefix("torch.")] += module.nbytes
    # Routers and tables of positions are never worth a word.
    most = sum(sizes.values()) / 100
    return " and ".join(name for name, size in sizes.most_common() if size > most)


def _settle(choice: KernelChoice, why: str | None) -> str | None:
    """Why there are none, in view of what was asked for."""
    if choice == "on" and why:
        raise UsageError(f"--kernels on cannot be had: {why}", hint="leave --kernels out")
    return "switched off" if choice == "off" else why


def _refusal(device: torch.device, dtype: torch.dtype) -> str | None:
    if device.type != "cpu":
        return f"the device is {device.type}"
    if dtype != torch.float32:
        return f"it computes in {str(dtype).removeprefix('torch.')}"
    return missing()
