"""Blocks moved into the quantised form against the numbers that the gguf library makes of them."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest
import torch

from llmcli.acquire.gguf.blocks import KEPT, blocks
from llmcli.acquire.gguf.reader import GgufFile, StoredTensor
from llmcli.errors import CheckpointError
from llmcli.model.packed import Int4, Int8

from .ggufs import random_blocks

ROWS, COLUMNS = 6, 512


def _stored(path: Path, kind: str, data: np.ndarray) -> tuple[GgufFile, StoredTensor]:
    path.write_bytes(b"before" + data.tobytes())
    tensor = StoredTensor("some.weight", kind, (ROWS, COLUMNS), 6, ROWS, data.shape[1])
    return GgufFile(path, {}, {"some.weight": tensor}), tensor


@pytest.mark.parametrize("order", [None, np.array([4, 1, 1, 5])], ids=["all", "some"])
@pytest.mark.parametrize("kind", KEPT)
def test_not_a_number_is_changed(tmp_path: Path, kind: str, order: np.ndarray | None) -> None:
    data = random_blocks(kind, ROWS, COLUMNS)
    parts = blocks(*_stored(tmp_path / "x", kind, data), order)
    made = {name: torch.from_numpy(part) for name, part in parts.items()}
    packed = Int8(**made) if len(made) == 2 else Int4(**made, width=COLUMNS)
    wanted = gguf.dequantize(data, gguf.GGMLQuantizationType[kind])
    found = packed.unpacked().numpy()
    np.testing.assert_array_equal(found, wanted if order is None else wanted[order])
    assert len(np.unique(wanted)) > 1000


@pytest.mark.parametrize(
    ("kind", "scale", "told"),
    [
        ("Q8_0", np.inf, "not a finite number"),
        ("Q4_0", 8200.0, "minimum beyond 65504"),
        ("Q4_1", np.nan, "not a finite number"),
    ],
)
def test_a_scale_that_cannot_be_held_is_refused(
    tmp_path: Path, kind: str, scale: float, told: str
) -> None:
    data = random_blocks(kind, ROWS, COLUMNS)
    data[3, :2] = np.array([scale], np.float16).view(np.uint8)
    with pytest.raises(CheckpointError, match=rf"some\.weight holds a .*{told}"):
        blocks(*_stored(tmp_path / "x", kind, data))


def test_the_smallest_and_largest_scales_of_four_bits_are_exact(tmp_path: Path) -> None:
    data = random_blocks("Q4_0", ROWS, COLUMNS)
    ends = np.array([2**-24, -(2**-24), 8184.0, -8184.0, 3 * 2**-24, 0.0], np.float16)
    data[:, :2] = ends.view(np.uint8).reshape(-1, 2)
    made = {
        name: torch.from_numpy(part)
        for name, part in blocks(*_stored(tmp_path / "x", "Q4_0", data)).items()
    }
    wanted = gguf.dequantize(data, gguf.GGMLQuantizationType.Q4_0)
    np.testing.assert_array_equal(Int4(**made, width=COLUMNS).unpacked().numpy(), wanted)
