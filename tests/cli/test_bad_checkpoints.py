"""Checkpoints that cannot be used: one line, exit 1, nothing on stdout (D5, E3)."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from llmcli.errors import AcquireError
from tests.cli.conftest import Invoke
from tests.cli.drive import Result
from tests.puppet import make_puppet

POINTER = (
    b"version https://git-lfs.github.com/spec/v1\n"
    b"oid sha256:5d1d06fe0a4d3c3f9c5e3f6c4d1d1b5f9e2f0f7b8a9c0d1e2f3a4b5c6d7e8f90\nsize 134515008\n"
)
WEIGHTS = "model.safetensors"


def one_line(result: Result, code: int = 1) -> str:
    """The error's line, once the whole shape is checked."""
    assert result.code == code, result.err
    assert result.out == ""
    lines = result.err.splitlines()
    assert lines[0].startswith("error: ")
    assert lines[1] == ""
    assert lines[2].startswith("hint: ")
    assert len(lines) == 3
    return lines[0]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_puppet(tmp_path / "model", ["a", "b", "c"]).folder


Break = Callable[[Path], object]


def in_header(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:100])


def in_data(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1000])


def as_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda file: file.write_bytes(POINTER), ["git-lfs"]),
        (lambda file: file.write_bytes(b""), ["0 bytes"]),
        (lambda file: file.write_bytes(b"1234567"), ["7 bytes"]),
        (in_header, ["100"]),
        (in_data, ["is cut"]),
        (lambda file: file.write_bytes(b"<!DOCTYPE html><html>sign in</html>"), ["web page"]),
        (lambda file: file.write_bytes(struct.pack("<Q", 2**62) + b"{}" * 50), []),
        (as_folder, []),
        (lambda file: file.unlink(), ["holds no"]),
    ],
)
def test_damaged_weights(invoke: Invoke, folder: Path, damage: Break, words: list[str]) -> None:
    damage(folder / WEIGHTS)
    line = one_line(invoke("generate", "-m", str(folder), "hi"))
    assert WEIGHTS in line
    for word in words:
        assert word.casefold() in line.casefold()


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("lm_head.weight", float("nan")),
        ("lm_head.weight", float("inf")),
        ("model.norm.weight", float("inf")),
        ("model.layers.0.mlp.gate_proj.weight", float("nan")),
    ],
)
@pytest.mark.parametrize("flags", [[], ["--no-kv-cache"], ["-t", "1"]])
def test_values_that_are_not_finite(
    invoke: Invoke, folder: Path, part: str, value: float, flags: list[str]
) -> None:
    tensors = load_file(folder / WEIGHTS)
    tensors[part][0, ...] = value
    save_file(tensors, folder / WEIGHTS)
    line = one_line(invoke("generate", "-m", str(folder), "hi", *flags))
    assert "new token 1 are not finite in float32" in line


def test_an_overflow_in_mid_reply_keeps_the_text(invoke: Invoke, tmp_path: Path) -> None:
    puppet = make_puppet(tmp_path / "model", ["fi", "ne", " so", " far"])
    tensors = load_file(puppet.folder / WEIGHTS)
    # Only the embedding of the third token is broken, which is fed for the fourth.
    tensors["model.embed_tokens.weight"][puppet.ids[2], 0] = torch.inf
    save_file(tensors, puppet.folder / WEIGHTS)
    result = invoke("generate", "-m", str(puppet.folder), "hi", "--stop", "so much")
    assert (result.code, result.out) == (1, "fine so\n")
    assert "new token 4 are not finite in float32" in result.err
    assert "Traceback" not in result.err


def test_float16_overflow_names_the_dtype_and_the_way_out(invoke: Invoke, folder: Path) -> None:
    tensors = load_file(folder / WEIGHTS)
    tensors["model.layers.0.mlp.up_proj.weight"][:] = 6e4
    tensors["model.layers.0.mlp.gate_proj.weight"][:] = 6e4
    tensors["model.layers.0.mlp.down_proj.weight"][:] = 1.0
    save_file(tensors, folder / WEIGHTS)
    result = invoke("generate", "-m", str(folder), "hi", "--dtype", "float16")
    assert "not finite in float16" in one_line(result)
    assert "--dtype bfloat16 or float32" in result.err


@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        ("config.json", "{", ["config.json", "JSON"]),
        ("config.json", '{"model_type": "mamba"}', ["mamba", "llama"]),
        ("config.json", "{}", ["model_type"]),
        ("tokenizer.json", None, ["tokenizer.json"]),
        ("tokenizer.json", "{}", ["tokenizer.json"]),
        ("tokenizer_config.json", "[", ["tokenizer_config.json"]),
    ],
)
def test_damaged_small_files(
    invoke: Invoke, folder: Path, file: str, text: str | None, words: list[str]
) -> None:
    if text is None:
        (folder / file).unlink()
    else:
        (folder / file).write_text(text, encoding="utf-8")
    result = invoke("generate", "-m", str(folder), "hi")
    one_line(result)
    for word in words:
        assert word in result.err


def test_a_tokenizer_of_another_model(invoke: Invoke, tmp_path: Path, folder: Path) -> None:
    other = make_puppet(tmp_path / "other", ["a", "b", "c", "more", "words"]).folder
    shutil.copy(other / "tokenizer.json", folder / "tokenizer.json")
    assert "tokenizer has ids up to" in one_line(invoke("generate", "-m", str(folder), "hi"))


def test_an_unknown_setting_of_the_config_is_named(invoke: Invoke, folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps({**config, "warp_factor": 9}), encoding="utf-8")
    result = invoke("generate", "-m", str(folder), "hi")
    assert (result.code, result.out) == (0, "abc\n")
    assert result.err.startswith("warning: ")
    assert "warp_factor" in result.err


@pytest.mark.parametrize(
    ("model", "code", "words"),
    [
        ("nope", 1, ["'nope'", "smollm2", "stories260k"]),
        ("stories260", 1, ["did you mean stories260k"]),
        ("./nope", 1, ["nope does not exist"]),
        ("", 2, ["'' is not a model"]),
        (".", 1, ["holds no config.json"]),
        ("a-file", 2, ["a-file is a file"]),
        ("x.gguf", 2, ["x.gguf is a GGUF file", "llmcli convert"]),
        ("own/er/name", 1, ["own/er/name does not exist"]),
        ("~nobody-here/x", 1, ["nobody-here"]),
        ("x" * 5000, 1, ["xxx"]),
    ],
)
def test_models_that_are_not_there(invoke: Invoke, model: str, code: int, words: list[str]) -> None:
    Path("a-file").touch()
    Path("x.gguf").touch()
    result = invoke("generate", "-m", model, "hi")
    one_line(result, code)
    for word in words:
        assert word in result.err


def test_the_variable_is_asked_for_too(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    monkeypatch.setenv("LLMCLI_MODEL", "nope")
    one_line(invoke("generate", "hi"))
    monkeypatch.setenv("LLMCLI_MODEL", str(folder))
    told = json.loads(invoke("generate", "hi", "--json").out)
    assert told["options"]["model"]["source"] == "LLMCLI_MODEL"
    assert invoke("generate", "hi", "-m", str(folder)).out == "abc\n"


def test_the_default_falls_back_with_one_line(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pull(*_: object, **__: object) -> None:
        raise AcquireError("smollm2 cannot be fetched: no network", hint="find one")

    monkeypatch.setattr("llmcli.acquire.resolve.pull", pull)
    result = invoke("generate", "Once upon a time", "-n", "4")
    assert (result.code, result.out) == (0, ", there was a\n")
    assert len(result.err.splitlines()) == 1
    assert "using the small embedded stories260k" in result.err
    # What was asked for is never replaced.
    assert "no network" in one_line(invoke("generate", "-m", "smollm2", "hi"))


@pytest.mark.parametrize("device", ["cuda", "cuda:7", "mps"])
def test_devices_that_are_not_there(invoke: Invoke, folder: Path, device: str) -> None:
    if device == "mps" and torch.backends.mps.is_available():
        pytest.skip("there is one")
    if device == "cuda" and torch.cuda.is_available():
        pytest.skip("there is one")
    line = one_line(invoke("generate", "-m", str(folder), "hi", "--device", device))
    assert f"device {device}" in line
