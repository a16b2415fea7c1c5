"""The folder: what is missing, broken JSON, sharded indexes, other kinds of weights."""

from __future__ import annotations

import json
from pathlib import Path
from unittest import mock

import pytest
from safetensors.torch import save_file
from torch import Tensor

from llmcli.checkpoint.directory import ModelDir, read_json
from llmcli.errors import CheckpointError
from tests.tiny import TINY, tiny_tensors, write_tiny

FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
INDEX = "model.safetensors.index.json"


def _refusal(folder: Path) -> CheckpointError:
    with pytest.raises(CheckpointError) as caught:
        ModelDir.open(folder).tensors()
    assert caught.value.message.isprintable()
    assert caught.value.hint
    return caught.value


# the folder and its config


def test_not_a_folder(tmp_path: Path) -> None:
    for path in (tmp_path / "nowhere", Path(__file__)):
        assert "is not a folder" in _refusal(path).message


def test_no_config(tmp_path: Path) -> None:
    assert "holds no config.json" in _refusal(tmp_path).message


def test_adapter(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text("{}")
    (tmp_path / "adapter_model.safetensors").write_bytes(b"")
    error = _refusal(tmp_path)
    assert "adapter" in error.message
    assert "merge" in error.hint


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "not valid JSON"),
        ('{"model_type": ', "not valid JSON"),
        ("<html>", "not valid JSON"),
        ("\ufeff[]", "list"),
        ('"llama"', "str"),
        ("null", "NoneType"),
        ("[" * 100_000, "not valid JSON"),
        ('{"a": ' + "9" * 5000 + "}", "not valid JSON"),
    ],
)
def test_broken_config(tmp_path: Path, text: str, word: str) -> None:
    (tmp_path / "config.json").write_text(text, encoding="utf-8")
    message = _refusal(tmp_path).message
    assert "config.json" in message
    assert word in message


def test_config_that_is_not_utf8(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(b'{"a": "\xff"}')
    assert "config.json is not valid JSON" in _refusal(tmp_path).message


def test_config_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(b"\xef\xbb\xbf" + json.dumps(TINY).encode())
    assert ModelDir.open(tmp_path).config == TINY


def test_config_without_permission(tmp_path: Path) -> None:
    """Patched, as root may read everything."""
    denied = PermissionError(13, "Permission denied")
    with (
        mock.patch.object(Path, "read_text", side_effect=denied),
        pytest.raises(CheckpointError, match=r"config\.json cannot be read: Permission denied"),
    ):
        read_json(tmp_path / "config.json")


def test_generation_config(tmp_path: Path) -> None:
    directory = write_tiny(tmp_path)
    assert directory.generation_config() == {}
    (tmp_path / "generation_config.json").write_text('{"top_k": 5}')
    assert directory.generation_config() == {"top_k": 5}
    (tmp_path / "generation_config.json").write_text("5")
    with pytest.raises(CheckpointError, match="generation_config"):
        directory.generation_config()


# other weights


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("pytorch_model.bin", "never loaded"),
        ("consolidated.00.pth", "never loaded"),
        ("model.pt", "never loaded"),
        ("last.ckpt", "never loaded"),
        ("model-q4.gguf", "llmcli convert"),
        ("tokenizer.json", "missing"),
    ],
)
def test_other_weights(tmp_path: Path, name: str, hint: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps(TINY))
    (tmp_path / name).write_bytes(b"\x80\x04")
    error = _refusal(tmp_path)
    assert "holds no model.safetensors" in error.message
    assert hint in error.hint


# the index


def _shards() -> dict[str, dict[str, Tensor]]:
    tensors = tiny_tensors()
    second = {name for name in tensors if ".1." in name or "head" in name}
    return {
        FIRST: {name: one for name, one in tensors.items() if name not in second},
        SECOND: {name: one for name, one in tensors.items() if name in second},
    }


def _write_sharded(folder: Path, weight_map: object = None) -> ModelDir:
    (folder / "config.json").write_text(json.dumps(TINY))
    shards = _shards()
    for shard, tensors in shards.items():
        save_file(tensors, folder / shard)
    if weight_map is None:
        weight_map = {name: shard for shard, held in shards.items() for name in held}
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return ModelDir.open(folder)


def _map(**changes: str) -> dict[str, str]:
    return {name: shard for shard, held in _shards().items() for name in held} | changes


def test_sharded(tmp_path: Path) -> None:
    tensors = _write_sharded(tmp_path).tensors()
    assert set(tensors) == set(tiny_tensors())
    assert tensors["lm_head.weight"].file.name == SECOND


def test_missing_shard(tmp_path: Path) -> None:
    _write_sharded(tmp_path)
    (tmp_path / SECOND).unlink()
    assert f"1 of 2 weight files are missing: {SECOND}" in _refusal(tmp_path).message


def test_cut_shard(tmp_path: Path) -> None:
    _write_sharded(tmp_path)
    content = (tmp_path / SECOND).read_bytes()
    (tmp_path / SECOND).write_bytes(content[:-5])
    message = _refusal(tmp_path).message
    assert SECOND in message
    assert "is cut" in message


@pytest.mark.parametrize(
    "shard",
    [
        "../secret.safetensors",
        "/etc/passwd",
        "sub/model.safetensors",
        "sub\\model.safetensors",
        "..",
        ".",
        "",
        "C:\\model.safetensors",
    ],
)
def test_path_outside_the_folder(tmp_path: Path, shard: str) -> None:
    (tmp_path / "x").mkdir()
    save_file(tiny_tensors(), tmp_path / "secret.safetensors")
    _write_sharded(tmp_path / "x", _map(**{"lm_head.weight": shard}))
    with mock.patch("llmcli.checkpoint.directory.read_header") as opened:
        assert "outside its folder" in _refusal(tmp_path / "x").message
    opened.assert_not_called()


def test_tensor_in_another_shard_than_the_index_says(tmp_path: Path) -> None:
    _write_sharded(tmp_path, _map(**{"lm_head.weight": FIRST}))
    message = _refusal(tmp_path).message
    assert "`lm_head.weight`" in message
    assert FIRST in message
    assert SECOND in message


def test_tensor_that_the_index_does_not_list(tmp_path: Path) -> None:
    listed = _map()
    del listed["lm_head.weight"]
    _write_sharded(tmp_path, listed)
    assert "`lm_head.weight`" in _refusal(tmp_path).message


def test_tensor_in_two_shards(tmp_path: Path) -> None:
    _write_sharded(tmp_path)
    shards = _shards()
    shards[FIRST]["lm_head.weight"] = shards[SECOND]["lm_head.weight"]
    save_file(shards[FIRST], tmp_path / FIRST)
    assert "`lm_head.weight`" in _refusal(tmp_path).message


def test_tensor_that_no_shard_holds(tmp_path: Path) -> None:
    _write_sharded(tmp_path, _map(**{"model.extra\x1b.weight": FIRST}))
    message = _refusal(tmp_path).message
    assert "lists 1 tensors that no file holds: model.extra\\x1b.weight" in message


@pytest.mark.parametrize(
    "weight_map", [[], "x", 5, {"a": 5}, {"a": None}, {"a": ["model.safetensors"]}]
)
def test_weight_map_of_another_kind(tmp_path: Path, weight_map: object) -> None:
    _write_sharded(tmp_path, weight_map)
    assert "weight_map" in _refusal(tmp_path).message


def test_single_file_wins_over_an_index(tmp_path: Path) -> None:
    _write_sharded(tmp_path)
    write_tiny(tmp_path)
    assert {one.file.name for one in ModelDir.open(tmp_path).tensors().values()} == {
        "model.safetensors"
    }
