"""What can be listed of damaged files."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

from llmcli.checkpoint.directory import ModelDir
from llmcli.checkpoint.listing import list_tensors


def _sharded(folder: Path) -> ModelDir:
    (folder / "config.json").write_text("{}")
    names = {"a": "one.safetensors", "b": "two.safetensors", "c": "three.safetensors"}
    for name, file in names.items():
        save_file({name: torch.ones(4)}, folder / file)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": names}))
    return ModelDir.open(folder)


def test_a_sound_folder_has_no_fault(tmp_path: Path) -> None:
    listing = list_tensors(_sharded(tmp_path))
    assert sorted(listing.tensors) == ["a", "b", "c"]
    assert listing.faults == ()


def test_every_fault_is_told_and_the_rest_is_listed(tmp_path: Path) -> None:
    directory = _sharded(tmp_path)
    (tmp_path / "one.safetensors").unlink()
    two = tmp_path / "two.safetensors"
    two.write_bytes(two.read_bytes()[:-8])
    listing = list_tensors(directory)
    assert sorted(listing.tensors) == ["b", "c"]
    cut, missing = sorted(fault.message for fault in listing.faults)[::-1]
    assert "two.safetensors is cut" in cut
    assert missing == "one.safetensors is missing"


def test_a_header_that_cannot_be_read_hides_only_its_own_tensors(tmp_path: Path) -> None:
    directory = _sharded(tmp_path)
    (tmp_path / "two.safetensors").write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    listing = list_tensors(directory)
    assert sorted(listing.tensors) == ["a", "c"]
    assert [fault.message.split()[0] for fault in listing.faults] == ["two.safetensors"]


def test_an_index_that_points_outside_is_never_followed(tmp_path: Path) -> None:
    directory = _sharded(tmp_path)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "../one.safetensors"}}))
    listing = list_tensors(directory)
    assert listing.tensors == {}
    assert "points outside" in listing.faults[0].message
