"""Stored tensors that compute nothing: old buffers, other prefixes, layers of another use."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from llmcli.checkpoint.directory import ModelDir
from llmcli.engine.load import Loaded, load_decoder
from llmcli.errors import CheckpointError
from tests.families.conftest import MakeOracle
from tests.families.rows import ROWS
from tests.oracle import Oracle, assert_close

Change = Callable[[Mapping[str, Tensor]], dict[str, Tensor]]
NONE = torch.zeros(1)


def _oracle(oracle: MakeOracle, name: str) -> Oracle:
    return oracle(next(row for row in ROWS if row.name == name))


def _load_changed(theirs: Oracle, folder: Path, change: Change) -> Loaded:
    shutil.copytree(theirs.folder, folder)
    path = folder / "model.safetensors"
    save_file(change(load_file(path)), path, metadata={"format": "pt"})
    return load_decoder(ModelDir.open(folder), device="cpu", dtype="float32")


def _assert_the_same(theirs: Oracle, loaded: Loaded) -> None:
    with torch.inference_mode():
        assert_close(loaded.decoder(theirs.ids, last_only=False)[0], theirs.logits)


@pytest.mark.parametrize(
    ("row", "names"),
    [
        ("gpt_neox-parallel", ["gpt_neox.layers.0.attention.rotary_emb.inv_freq"]),
        ("gpt_neox-parallel", ["gpt_neox.layers.1.attention.bias"]),
        ("gptj-plain", ["transformer.h.0.attn.bias", "transformer.h.1.attn.masked_bias"]),
        ("gpt_neo-plain", ["transformer.h.2.attn.attention.bias"]),
        ("gpt_bigcode-multi-query", ["transformer.h.0.attn.bias"]),
        ("openai-gpt-plain", ["transformer.h.0.attn.bias", "transformer.position_ids"]),
        ("xglm-plain", ["model.embed_positions.weights"]),
        ("qwen3_next-plain", ["mtp.fc.weight", "mtp.layers.0.mlp.experts.3.up_proj.weight"]),
        ("deepseek_v3-plain", ["model.layers.2.eh_proj.weight", "model.layers.2.enorm.weight"]),
    ],
)
def test_what_computes_nothing_is_passed_over(
    row: str, names: list[str], oracle: MakeOracle, tmp_path: Path
) -> None:
    theirs = _oracle(oracle, row)
    more = dict.fromkeys(names, NONE)
    loaded = _load_changed(
        theirs,
        tmp_path / "more",
        lambda held: {**held, **{name: one.clone() for name, one in more.items()}},
    )
    _assert_the_same(theirs, loaded)


@pytest.mark.parametrize(
    ("row", "name"),
    [
        # A whole layer that the config does not count, not the one that predicts further ahead.
        ("deepseek_v3-plain", "model.layers.2.input_layernorm.weight"),
        ("deepseek_v3-plain", "model.layers.3.eh_proj.weight"),
        ("gpt_neox-parallel", "gpt_neox.layers.2.attention.bias"),
        ("qwen3_next-plain", "model.mtp.fc.weight"),
        ("opt-plain", "model.decoder.project_in.weight"),
    ],
)
def test_what_nobody_knows_is_refused_by_name(
    row: str, name: str, oracle: MakeOracle, tmp_path: Path
) -> None:
    with pytest.raises(CheckpointError, match=name.replace(".", r"\.")):
        _load_changed(
            _oracle(oracle, row), tmp_path / "more", lambda held: {**held, name: NONE.clone()}
        )


@pytest.mark.parametrize(
    ("row", "prefix", "other"),
    [
        ("bloom-plain", "transformer.", ""),
        ("openai-gpt-plain", "transformer.", ""),
        ("opt-350m", "model.decoder.", "decoder."),
        ("falcon-rw-1b", "transformer.", ""),
    ],
)
def test_the_prefixes_of_older_files(
    row: str, prefix: str, other: str, oracle: MakeOracle, tmp_path: Path
) -> None:
    theirs = _oracle(oracle, row)
    loaded = _load_changed(
        theirs,
        tmp_path / "older",
        lambda held: {
            other + name.removeprefix(prefix) if name.startswith(prefix) else name: one
            for name, one in held.items()
        },
    )
    _assert_the_same(theirs, loaded)
