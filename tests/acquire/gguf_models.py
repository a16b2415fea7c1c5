"""Tiny models of transformers written as GGUF by the rules of the format's own converter.

Tensor names come from the gguf library, so that they do not repeat the importer's table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from transformers import AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel

from llmcli.acquire.gguf_import import convert

from .ggufs import Vocab, add_value, add_vocab, byte_vocab
from .recorder import Recorder

IDS = torch.tensor([[1, 5, 9, 200, 13, 77, 3, 3, 250, 41, 8, 60, 61, 62, 63, 100]])
VOCAB = 288
Change = Callable[[str, np.ndarray], np.ndarray]


def tiny(config: PreTrainedConfig, *, norm: float = 1.0, spread: float = 0.15) -> PreTrainedModel:
    """The model of `config` with every parameter random: norms around `norm`, the rest around 0."""
    torch.manual_seed(7)
    model = AutoModelForCausalLM.from_config(config).float().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            middle = norm if is_norm(name) else 0.0
            parameter.copy_(torch.randn_like(parameter) * spread + middle)
    return model


def is_norm(name: str) -> bool:
    return name.endswith(("norm.weight", "ln_1.weight", "ln_2.weight", "ln_f.weight"))


def logits(model: torch.nn.Module, ids: torch.Tensor = IDS) -> torch.Tensor:
    with torch.no_grad():
        return model.eval()(ids).logits


def same(name: str, values: np.ndarray) -> np.ndarray:
    return values


def write_model(
    path: Path,
    model: PreTrainedModel,
    arch: str,
    metadata: Mapping[str, Any],
    *,
    change: Change = same,
    kind: str = "F32",
    more: Mapping[str, np.ndarray] | None = None,
    vocab: Vocab | None = None,
    without: Sequence[str] = (),
) -> Path:
    """Write `model`; `change` is what the converter does to a tensor of that name in the model."""
    writer = gguf.GGUFWriter(path, arch)
    for key, value in metadata.items():
        add_value(writer, f"{arch}.{key}", value)
    add_vocab(writer, vocab or byte_vocab())
    tensors = {name: change(hf, value) for hf, name, value in named(model, arch)} | dict(more or {})
    for name, values in tensors.items():
        if name in without:
            continue
        form = gguf.GGMLQuantizationType.F32
        if values.ndim == 2 and values.shape[-1] % 32 == 0:
            form = gguf.GGMLQuantizationType[kind]
        writer.add_tensor(name, gguf.quantize(np.ascontiguousarray(values), form), raw_dtype=form)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def named(model: PreTrainedModel, arch: str) -> list[tuple[str, str, np.ndarray]]:
    """Each tensor's name in the model, its name in GGUF, its values."""
    number = next(key for key, name in gguf.MODEL_ARCH_NAMES.items() if name == arch)
    names = gguf.get_tensor_name_map(number, model.config.num_hidden_layers)
    tied = model.config.tie_word_embeddings
    found = []
    for name, tensor in model.state_dict().items():
        if tied and name == "lm_head.weight":
            continue
        stem, _, last = name.rpartition(".")
        stored = names.get_name(stem)
        assert stored, name
        found.append((name, f"{stored}.{last}", tensor.numpy()))
    return found


def converted(folder: Path, dtype: Any = "float32") -> Any:
    """`m.gguf` converted and loaded by transformers, with nothing left over or missing."""
    told = Recorder()
    convert(folder / "m.gguf", folder / "out", dtype=dtype, progress=told)
    assert not told.notices
    model, report = AutoModelForCausalLM.from_pretrained(
        folder / "out", dtype=torch.float32, output_loading_info=True
    )
    assert not any(report[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    return model


def near(ours: torch.Tensor, wanted: torch.Tensor) -> bool:
    """Within 1e-4 of the spread of logits that have one."""
    assert wanted.std() > 0.3
    return bool((ours - wanted).abs().max() < 1e-4 * wanted.std())
