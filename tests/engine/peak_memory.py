"""Run as a program: load a checkpoint, touch every weight, print the peak memory it took."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from llmcli.checkpoint.directory import ModelDir
from llmcli.engine.device import DtypeName
from llmcli.engine.load import load_decoder
from llmcli.spec import PackingKind


def _status(field: str) -> int:
    """A field of /proc/self/status in bytes; ru_maxrss would count the parent's pages too."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise LookupError(field)


def measure(folder: Path, dtype: DtypeName, quantize: PackingKind | None = None) -> int:
    torch.set_num_threads(1)
    own = _status("VmRSS")
    directory = ModelDir.open(folder)
    decoder = load_decoder(directory, device="cpu", dtype=dtype, quantize=quantize).decoder
    with torch.inference_mode():
        decoder(torch.tensor([[1]]))
        for parameter in decoder.parameters():
            parameter.amax()
    return _status("VmHWM") - own


if __name__ == "__main__":
    sys.stdout.write(str(measure(Path(sys.argv[1]), *sys.argv[2:])))
