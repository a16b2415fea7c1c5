"""Where a forward pass first goes wrong; run only after it did, so it costs nothing before."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from llmcli.model.decoder import Decoder


def first_bad_part(decoder: Decoder, ids: Tensor) -> str | None:
    """Name of the first module, in order of computation, whose output holds NaN or infinity."""
    bad: list[str] = []

    def watch(name: str) -> torch.utils.hooks.RemovableHandle:
        def look(_module: nn.Module, _inputs: object, output: Tensor) -> None:
            if not bad and not bool(output.isfinite().all()):
                bad.append(name)

        return decoder.get_submodule(name).register_forward_hook(look)

    handles = [
        watch(name)
        for name, module in decoder.named_modules()
        if name and not isinstance(module, nn.ModuleList)
    ]
    try:
        with torch.inference_mode(), decoder.watched():
            logits = decoder(ids)
    finally:
        for handle in handles:
            handle.remove()
    if not bad and not bool(logits.isfinite().all()):
        return "lm_head"
    return bad[0] if bad else None
