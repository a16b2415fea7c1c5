"""Run as a program: load a checkpoint, touch every weight, print the peak memory it took."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from llmcli.checkpoint.directory import ModelDir
from llmcli.engine.load import load_decoder


def _status(field: str) -> int:
    """A field of /proc/self/status in bytes; ru_maxrss would count the parent's pages too."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise LookupError(field)


def measure(folder: Path, dtype: str) -> int:
    torch.set_num_threads(1)
    own = _status("VmRSS")
    decoder = load_decoder(ModelDir.open(folder), device="cpu", dtype=dtype).decoder
    with torch.inference_mode():
        decoder(torch.tensor([[1]]))
        for parameter in decoder.parameters():
            parameter.amax()
    return _status("VmHWM") - own


if __name__ == "__main__":
    sys.stdout.write(str(measure(Path(sys.argv[1]), sys.argv[2])))
