"""A checkpoint written in 8 or 4 bits loads as it was packed, and a damaged one is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from llmcli.acquire.progress import Silent
from llmcli.acquire.resolve import Resolved
from llmcli.checkpoint.directory import ModelDir
from llmcli.engine.load import load_decoder
from llmcli.engine.quantizing import quantize
from llmcli.errors import CheckpointError, LlmcliError, UnsupportedError, UsageError
from llmcli.model.linear import Weighted
from llmcli.model.packed import Packed, pack
from llmcli.spec import PackingKind, packing
from tests.tiny import tiny_tensors, write_tiny

KINDS: list[PackingKind] = ["int8", "int4"]


def _made(folder: Path, kind: PackingKind, *, group: int = 32, most: int = 10**9) -> Path:
    source = folder / "source"
    write_tiny(source)
    out = folder / "out"
    resolved = Resolved(source, "source", "folder")
    quantize(resolved, out, kind, group=group, progress=Silent(), most_bytes=most)
    return out


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("most", [10**9, 20_000])
def test_it_loads_as_it_was_packed(tmp_path: Path, kind: PackingKind, most: int) -> None:
    out = _made(tmp_path, kind, group=24, most=most)
    plain = load_decoder(ModelDir.open(tmp_path / "source")).decoder
    found = load_decoder(ModelDir.open(out)).decoder
    for name, held in packing(plain.spec, kind).items():
        path = name.removesuffix(".weight")
        before, after = plain.get_submodule(path), found.get_submodule(path)
        assert isinstance(before, Weighted)
        assert isinstance(after, Weighted)
        assert isinstance(after.packed, Packed), name
        wanted = pack(before.matrix(), held, group=24)
        assert torch.equal(after.packed.unpacked(), wanted.unpacked()), name
    ids = torch.tensor([[1, 5, 9]])
    assert found(ids).isfinite().all()
    files = len(list(out.glob("*.safetensors")))
    assert files == 1 if most == 10**9 else files > 1


def test_nothing_is_overwritten_or_quantised_twice(tmp_path: Path) -> None:
    out = _made(tmp_path, "int8")
    with pytest.raises(UsageError, match="holds files already"):
        quantize(Resolved(out, "out", "folder"), out, "int8", group=32, progress=Silent())
    with pytest.raises(UsageError, match="quantised already"):
        quantize(
            Resolved(out, "out", "folder"), tmp_path / "new", "int8", group=32, progress=Silent()
        )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "source"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_a_number_that_is_not_finite_leaves_nothing(
    tmp_path: Path, kind: PackingKind, bad: float
) -> None:
    tensors = tiny_tensors()
    tensors["model.layers.0.mlp.up_proj.weight"][3, 4] = bad
    write_tiny(tmp_path / "source", tensors)
    resolved, out = Resolved(tmp_path / "source", "source", "folder"), tmp_path / "out"
    with pytest.raises(CheckpointError, match=r"layers.0.mlp.up_proj.weight cannot be quantised"):
        quantize(resolved, out, kind, group=32, progress=Silent())
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def _without(name: str) -> Callable[[dict[str, Tensor]], None]:
    def change(tensors: dict[str, Tensor]) -> None:
        del tensors[name]

    return change


def _short(tensors: dict[str, Tensor]) -> None:
    name = "layers.0.attn.q_proj.weight.scale"
    tensors[name] = tensors[name][1:].clone()


def _more(tensors: dict[str, Tensor]) -> None:
    tensors["layers.9.x"] = torch.zeros(1)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (_without("layers.0.attn.q_proj.weight.scale"), "missing: layers.0.attn.q_proj.weight.sca"),
        (_without("layers.0.attn.q_proj.weight.codes"), "missing"),
        (_without("norm.weight"), "missing: norm.weight"),
        (_short, "config says F"),
        (_more, "unexpected: layers.9.x"),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_file_is_refused(
    tmp_path: Path, kind: PackingKind, change: Callable[[dict[str, Tensor]], None], told: str
) -> None:
    out = _made(tmp_path, kind)
    tensors = load_file(out / "model.safetensors")
    change(tensors)
    save_file(tensors, out / "model.safetensors")
    with pytest.raises(CheckpointError, match=told):
        load_decoder(ModelDir.open(out))


@pytest.mark.parametrize(
    ("block", "error"),
    [
        ({"version": 2}, UnsupportedError),
        ({"version": True}, UnsupportedError),
        ({"bits": 5}, CheckpointError),
        ({"group_size": 3}, CheckpointError),
        ({"extra": 1}, CheckpointError),
    ],
)
def test_a_block_that_is_not_known_is_refused(
    tmp_path: Path, block: dict[str, Any], error: type[LlmcliError]
) -> None:
    out = _made(tmp_path, "int4")
    config = json.loads((out / "config.json").read_text())
    config["llmcli_quantization"].update(block)
    (out / "config.json").write_text(json.dumps(config))
    with pytest.raises(error, match="llmcli_quantization"):
        load_decoder(ModelDir.open(out))
