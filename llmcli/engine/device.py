"""Which device and dtype a run uses, and why. Must not know files or families."""

from __future__ import annotations

from typing import Literal

import torch

from llmcli.cache import CacheKind
from llmcli.errors import LlmcliError, UsageError
from llmcli.model.attend import Attend, Visibility, attend

DtypeName = Literal["auto", "float32", "bfloat16", "float16"]

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}

# Long enough for the wrong results of MPS attention (1 query, grouped heads, >= 1024 keys).
_CHECK_KEYS = 1100


def choose_device(asked: str) -> tuple[torch.device, str]:
    """The device and the reason, for `auto`, `cpu`, `cuda`, `cuda:N` or `mps`.

    Raises UsageError for a device that is not a known kind, LlmcliError for one that this
    machine or this build of torch lacks, or whose attention gives wrong results.
    """
    if asked == "auto":
        return _best_device()
    kind, colon, index = asked.partition(":")
    known = kind in ("cpu", "cuda", "mps") and (not colon or (index.isdecimal() and kind == "cuda"))
    if not known:
        raise UsageError(
            f"device {asked!r} is not one of auto, cpu, cuda, cuda:N, mps",
            hint="leave --device out to let llmcli choose",
        )
    if kind == "cuda":
        _require_cuda(int(index) if index else 0)
    if kind == "mps" and (problem := mps_problem()):
        raise LlmcliError(f"device mps cannot be used: {problem}", hint="use --device cpu")
    return torch.device(asked), "asked for"


def check_cache(kind: CacheKind | Literal["auto"], device: torch.device) -> None:
    """Raise UsageError for a kind of cache that has no sense on this device."""
    if kind == "offloaded" and device.type == "cpu":
        raise UsageError(
            "cache offloaded moves keys and values to host memory, but the device is cpu",
            hint="use another kind, or the usual one: they are in host memory already",
        )


def _best_device() -> tuple[torch.device, str]:
    if torch.cuda.is_available():
        return torch.device("cuda"), f"auto: {torch.cuda.get_device_name(0)} is there"
    if torch.backends.mps.is_available():
        if problem := mps_problem():
            return torch.device("cpu"), f"auto: mps is there, but {problem}"
        return torch.device("mps"), "auto: mps is there and its attention agrees with the CPU"
    return torch.device("cpu"), "auto: no CUDA or MPS device is there"


def _require_cuda(index: int) -> None:
    if not torch.cuda.is_available():
        built = "this build of torch has no CUDA" if not torch.version.cuda else "none was found"
        raise LlmcliError(f"device cuda:{index} is not available: {built}", hint="use --device cpu")
    count = torch.cuda.device_count()
    if index >= count:
        raise LlmcliError(
            f"device cuda:{index} does not exist; there are {count}",
            hint=f"use cuda:0 to cuda:{count - 1}",
        )


def mps_problem() -> str | None:
    """What keeps MPS from being used, found by a real allocation and a real attention."""
    if not torch.backends.mps.is_available():
        return "this machine or this build of torch has no MPS"
    try:
        torch.ones(1, device="mps")
    except RuntimeError as error:
        return f"an allocation fails ({error})"
    return None if attention_agrees(torch.device("mps")) else "its attention gives wrong results"


def attention_agrees(
    device: torch.device,
    attention: Attend = attend,
) -> bool:
    """Whether one decode step of grouped attention on `device` equals plain maths on the CPU."""
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(1, 4, 1, 64, generator=generator)
    k = torch.randn(1, 2, _CHECK_KEYS, 64, generator=generator)
    v = torch.randn(1, 2, _CHECK_KEYS, 64, generator=generator)
    grouped = q.view(1, 2, 2, 64)
    expected = (grouped @ k.transpose(-1, -2) / 8).softmax(-1) @ v
    got = attention(q.to(device), k.to(device), v.to(device), Visibility(), 1 / 8)
    return torch.allclose(got.cpu().view(1, 2, 2, 64), expected, atol=1e-3, rtol=1e-3)


def choose_dtype(
    asked: DtypeName,
    device: torch.device,
    stored: torch.dtype,
    *,
    packed: Literal["no", "loading", "file"] = "no",
) -> tuple[torch.dtype, str]:
    """The working dtype and the reason; `stored` is that of most of the plain weights.

    Matrices that are packed, in the file or while loading, are multiplied as float32 numbers on
    a CPU, by the kernels too.
    """
    if asked != "auto":
        return DTYPES[asked], "asked for"
    if device.type == "cpu" and packed != "no":
        return torch.float32, "auto: quantised matrices are multiplied in it"
    name = str(stored).removeprefix("torch.")
    if packed == "file":
        name = f"{name}, but for its quantised matrices"
    if stored in (torch.float32, torch.float64):
        return torch.float32, f"auto: the file is {name}"
    if device.type == "cpu":
        if stored == torch.bfloat16 and _native_bfloat16():
            return stored, "auto: the file's own, and this CPU computes in it"
        return torch.float32, f"auto: this CPU does not compute in the file's {name}"
    if stored == torch.bfloat16 and not _has_bfloat16(device):
        return torch.float32, "auto: this device has no bfloat16"
    own = "that of the file's plain numbers" if packed == "file" else "the file's own"
    return stored, f"auto: {own}, on {device.type}"


def _native_bfloat16() -> bool:
    """Whether matrix products in bfloat16 run on bfloat16 units rather than through float32."""
    capabilities = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    return any(capabilities.get(unit) for unit in ("amx_bf16", "avx512_bf16", "bf16"))


def _has_bfloat16(device: torch.device) -> bool:
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    try:
        torch.ones(1, device=device, dtype=torch.bfloat16) + 1
    except (RuntimeError, TypeError):
        return False
    return True
