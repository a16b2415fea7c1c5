"""In what a decoder's steps would run, told before anything is loaded (accelerate.py does it)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from llmcli.engine.accelerate import KernelChoice, why_none
from llmcli.errors import UsageError
from llmcli.model.fused import obstacle
from llmcli.model.product import MOST_ROWS
from llmcli.plurals import counted
from llmcli.spec import DecoderSpec


@dataclass(frozen=True, slots=True)
class Steps:
    """Of this spec on this device, with this choice of `--kernels`."""

    spec: DecoderSpec
    device: torch.device
    choice: KernelChoice

    def in_kernels(self, dtype: torch.dtype) -> bool:
        """Whether compiled kernels would run, had it to compute in this dtype."""
        if self.device.type != "cpu":
            return False
        try:
            return why_none(self.choice, self.spec, self.device, dtype) is None
        except UsageError:
            return False

    def most_tokens(self) -> int:
        """How many at once would go through all layers in one kernel, in float32; 0 where none."""
        whole = obstacle(self.spec) is None and self.in_kernels(torch.float32)
        return MOST_ROWS if whole else 0

    def told(self, dtype: torch.dtype) -> str:
        """As `-v` would say it. Raises UsageError where kernels are asked for and cannot be had."""
        if why := why_none(self.choice, self.spec, self.device, dtype):
            return f"torch ({why})"
        if self.device.type == "cuda":
            return "torch, recorded as CUDA graphs (caches growing, ring, static)"
        threads = counted(torch.get_num_threads(), "thread")
        if why := obstacle(self.spec):
            return f"torch, with compiled products ({why}), {threads}"
        return f"compiled kernels, {threads}"
