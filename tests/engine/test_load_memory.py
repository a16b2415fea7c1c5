"""E8: loading takes the final size and one tensor, measured in processes of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from llmcli.spec import count_parameters, packed_bytes, packing, parameter_shapes
from tests.tiny import TINY, stored_name, tiny_spec

BIG = {
    "vocab_size": 16000,
    "hidden_size": 768,
    "intermediate_size": 2048,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "num_key_value_heads": 12,
    "head_dim": 64,
    "torch_dtype": "bfloat16",
}
SPEC = tiny_spec(**BIG)
SPEC_SHAPES, PACKED = parameter_shapes(SPEC), packing(SPEC, "int8")
FILE_BYTES = 2 * count_parameters(SPEC)
FLOAT32_BYTES = 4 * count_parameters(SPEC)
LARGEST = 4 * SPEC.vocab_size * SPEC.hidden_size
# What the run itself takes (1 token's activations, libraries), and mapped pages not yet let go.
MARGIN = 80 << 20

CASES = {
    "kept": ("single", "bfloat16"),
    "widened": ("sharded", "float32"),
    "packed": ("sharded", "float32", "int8"),
}


@pytest.fixture(scope="module")
def peaks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """Peak memory of each case above the interpreter's own, in bytes; run side by side."""
    root = tmp_path_factory.mktemp("big")
    tensors = {
        stored_name(name): torch.full(shape, 0.01, dtype=torch.bfloat16)
        for name, shape in parameter_shapes(SPEC).items()
    }
    for form in ("single", "sharded"):
        (root / form).mkdir()
        (root / form / "config.json").write_text(json.dumps({**TINY, **BIG}))
    save_file(tensors, root / "single" / "model.safetensors")
    weight_map = {}
    for part in range(2):
        held = dict(sorted(tensors.items())[part::2])
        save_file(held, root / "sharded" / f"{part}.safetensors")
        weight_map.update(dict.fromkeys(held, f"{part}.safetensors"))
    index = root / "sharded" / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": weight_map}))
    started = {
        case: subprocess.Popen(
            [sys.executable, "-m", "tests.engine.peak_memory", str(root / form), *how],
            cwd=Path(__file__).parents[2],
            stdout=subprocess.PIPE,
        )
        for case, (form, *how) in CASES.items()
    }
    results = {case: int(process.communicate()[0]) for case, process in started.items()}
    for file in root.rglob("*.safetensors"):
        file.unlink()
    return results


linux = pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")


@linux
def test_bfloat16_kept(peaks: dict[str, int]) -> None:
    assert FILE_BYTES > 200e6
    assert 0.9 * FILE_BYTES < peaks["kept"] <= 1.1 * FILE_BYTES


@linux
def test_float32_from_sharded_bfloat16(peaks: dict[str, int]) -> None:
    assert 0.9 * FLOAT32_BYTES < peaks["widened"] <= FLOAT32_BYTES + LARGEST + MARGIN


@linux
def test_packed_while_loading(peaks: dict[str, int]) -> None:
    """Neither the file's 16-bit matrices nor their float32 numbers are ever held together."""
    packed = sum(packed_bytes(SPEC_SHAPES[name], kind) for name, kind in PACKED.items())
    assert packed < 0.6 * FILE_BYTES
    assert 0.9 * packed < peaks["packed"] <= packed + LARGEST // 2 + MARGIN
