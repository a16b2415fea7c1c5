"""The check: each fault of a checkpoint is found and named, and a sound one has none."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from llmcli.checkpoint.directory import ModelDir
from llmcli.insight.check import Check, check
from llmcli.insight.facts import Source, folder_facts
from llmcli.insight.values import PIECE_BYTES, equal_bytes, scan
from tests.tiny import tiny_tensors, write_tiny

STORIES = Path(__file__).parents[2] / "weights" / "stories260k"
WEIGHTS = "model.safetensors"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copytree(STORIES, tmp_path / "copy")
    return tmp_path / "copy"


def _checked(folder: Path, *, values: bool = False) -> Check:
    directory = ModelDir.open(folder)
    return check(folder_facts("copy", directory, Source()), directory, values=values)


def _edit(folder: Path, file: str, **changes: Any) -> None:
    content = json.loads((folder / file).read_text())
    (folder / file).write_text(json.dumps({**content, **changes}))


def _weights(folder: Path, change: Callable[[dict[str, Tensor]], None]) -> None:
    tensors = load_file(folder / WEIGHTS)
    change(tensors)
    save_file({name: tensor.clone() for name, tensor in tensors.items()}, folder / WEIGHTS)


def _cut(folder: Path) -> None:
    data = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(data[: len(data) // 2])


def _padded(folder: Path) -> None:
    with (folder / WEIGHTS).open("ab") as file:
        file.write(b"more")


def _poison(value: float) -> Callable[[dict[str, Tensor]], None]:
    def change(tensors: dict[str, Tensor]) -> None:
        tensors["model.norm.weight"][-1] = value

    return change


def _copy_head(scale: float) -> Callable[[dict[str, Tensor]], None]:
    def change(tensors: dict[str, Tensor]) -> None:
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"] * scale

    return change


def _odd_name(tensors: dict[str, Tensor]) -> None:
    tensors["evil\x1b[2J\nname"] = torch.zeros(1)


def test_a_sound_checkpoint(folder: Path) -> None:
    found = _checked(folder, values=True)
    assert (found.errors, found.warnings) == (0, 0)
    assert [one.about for one in found.findings] == [
        *("config", "files", "weights", "head", "values", "tokenizer", "template"),
        *("stop ids", "stop ids"),
    ]


Fault = Callable[[Path], object]

FAULTS: list[tuple[Fault, str, str, str]] = [
    (_cut, "error", "files", "is cut: data ends at byte"),
    (_padded, "error", "files", "has 4 bytes after its last tensor"),
    (lambda f: (f / WEIGHTS).unlink(), "error", "files", "holds no model.safetensors"),
    (lambda f: _edit(f, "config.json", novelty=1), "warning", "config", "novelty"),
    (lambda f: _edit(f, "config.json", hidden_size=32), "error", "files", "do not fit"),
    (lambda f: _weights(f, _odd_name), "error", "files", "evil\\x1b[2J\\nname"),
    (lambda f: _weights(f, _poison(float("nan"))), "error", "values", "1 value that is not finite"),
    (lambda f: _weights(f, _poison(-float("inf"))), "error", "values", "model.norm.weight has 1"),
    (
        lambda f: _weights(f, lambda t: t["model.norm.weight"].zero_()),
        "warning",
        "values",
        "model.norm.weight is all zeros",
    ),
    (lambda f: _weights(f, _copy_head(1)), "ok", "head", "lm_head.weight equals the embedding"),
    (lambda f: _weights(f, _copy_head(2)), "warning", "head", "lm_head.weight differs from"),
    (lambda f: (f / "tokenizer.json").unlink(), "error", "tokenizer", "tokenizer"),
    (
        lambda f: _edit(f, "tokenizer_config.json", chat_template="{% if %}"),
        "error",
        "template",
        "does not compile",
    ),
    (lambda f: _edit(f, "generation_config.json", eos_token_id="x"), "error", "stop ids", "'x'"),
    (lambda f: _edit(f, "config.json", eos_token_id=512), "warning", "stop ids", "512, named by c"),
    (
        lambda f: shutil.copy(f / WEIGHTS, f / "stale\x07.safetensors"),
        "warning",
        "files",
        "not part of the checkpoint: stale\\x07.safetensors",
    ),
]


@pytest.mark.parametrize(("fault", "level", "about", "text"), FAULTS)
def test_faults(folder: Path, fault: Fault, level: str, about: str, text: str) -> None:
    fault(folder)
    found = _checked(folder, values=True)
    hits = [one for one in found.findings if (one.level, one.about) == (level, about)]
    assert any(text in one.text for one in hits), found.findings
    assert (found.errors > 0) is (level == "error")
    assert all(one.text.isprintable() for one in found.findings)


def test_a_tokenizer_of_another_model(tmp_path: Path) -> None:
    write_tiny(tmp_path)  # 320 rows
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(STORIES / name, tmp_path / name)
    found = _checked(tmp_path)
    assert "ids go up to 511, but the embedding has only 320 rows" in [
        one.text for one in found.findings if one.level == "error"
    ]


def test_nothing_ends_a_reply(tmp_path: Path) -> None:
    write_tiny(tmp_path, tiny_tensors(), config={"vocab_size": 320})
    found = _checked(tmp_path)
    assert [one.about for one in found.findings if one.level == "error"] == ["tokenizer"]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "65000"])
def test_values_of_every_dtype(tmp_path: Path, dtype: torch.dtype, value: str) -> None:
    tensor = torch.ones(3, 5, dtype=dtype)
    tensor[1, 2] = float(value)
    save_file({"t": tensor, "z": -torch.zeros(2, dtype=dtype)}, tmp_path / WEIGHTS)
    from llmcli.checkpoint.header import read_header

    t, z = scan(read_header(tmp_path / WEIGHTS).tensors.values())
    assert (t.not_finite, t.zero, t.cut) == (int(value != "65000"), False, False)
    assert (z.not_finite, z.zero) == (0, True)


def test_values_across_pieces(tmp_path: Path) -> None:
    from llmcli.checkpoint.header import read_header

    count = PIECE_BYTES // 4 + 3
    one = torch.ones(count)
    other = one.clone()
    other[-1] = float("inf")
    save_file({"a": one, "b": other}, tmp_path / WEIGHTS)
    tensors = read_header(tmp_path / WEIGHTS).tensors
    seen: list[tuple[int, int]] = []
    results = scan(tensors.values(), lambda done, total: seen.append((done, total)))
    assert [result.not_finite for result in results] == [0, 1]
    assert seen[-1] == (8 * count, 8 * count)
    assert not equal_bytes(tensors["a"], tensors["b"])
    assert equal_bytes(tensors["a"], tensors["a"])
