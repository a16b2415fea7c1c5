"""What `llmcli quantize` writes of a family computes what the same packing in memory computes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from llmcli.acquire.progress import Silent
from llmcli.acquire.resolve import Resolved
from llmcli.checkpoint.directory import ModelDir
from llmcli.engine.load import Loaded, load_decoder
from llmcli.engine.quantizing import quantize
from llmcli.model import Decoder
from llmcli.model.linear import Weighted
from llmcli.spec import PackingKind, packing
from tests.families.rows import ROWS
from tests.oracle import Oracle, Row
from tests.tiny import tiny_spec, tiny_tensors, write_tiny

KINDS: list[PackingKind] = ["int8", "int4"]
# Between them: fused queries, keys and values of every layout, Conv1D, experts stored singly and
# stacked, biases, a head of its own, a projected embedding, recurrent layers, latent attention.
CHOSEN = (
    "bloom-plain",
    "deepseek_v3-plain",
    "falcon-40b",
    "gpt2-plain",
    "gpt2-untied",
    "gpt_neox-parallel",
    "gpt_oss-plain",
    "llama-biases",
    "mixtral-top-2",
    "opt-350m",
    "phi3-grouped",
    "qwen3_moe-dense-list",
    "qwen3_next-plain",
)
CHOSEN_ROWS = [row for row in ROWS if row.name in CHOSEN]
MakeOracle = Callable[[Row], Oracle]


def _both(source: Path, out: Path, kind: PackingKind) -> tuple[Loaded, Loaded]:
    """Packed while loading, and out of the folder that was written."""
    quantize(Resolved(source, "source", "folder"), out, kind, group=32, progress=Silent())
    memory = load_decoder(ModelDir.open(source), device="cpu", quantize=kind)
    return memory, load_decoder(ModelDir.open(out), device="cpu")


def _logits(decoder: Decoder, ids: Tensor) -> Tensor:
    with torch.inference_mode():
        logits: Tensor = decoder(ids, last_only=False)
    return logits


def _same(memory: Loaded, folder: Loaded, ids: Tensor, kind: PackingKind) -> None:
    assert folder.spec == memory.spec
    assert folder.form is not None
    for name in packing(memory.spec, kind):
        path = name.removesuffix(".weight")
        one, other = memory.decoder.get_submodule(path), folder.decoder.get_submodule(path)
        assert isinstance(one, Weighted)
        assert isinstance(other, Weighted)
        assert one.packed is not None
        assert other.packed is not None, name
        for part, held in one.packed.parts.items():
            assert torch.equal(other.packed.parts[part], held), f"{name}.{part}"
    wanted = _logits(memory.decoder, ids)
    assert wanted.isfinite().all()
    assert wanted.std() > 0.1
    assert torch.equal(_logits(folder.decoder, ids), wanted)


def test_every_chosen_row_is_there() -> None:
    assert {row.name for row in CHOSEN_ROWS} == set(CHOSEN)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("row", CHOSEN_ROWS, ids=lambda row: row.name)
def test_a_family(oracle: MakeOracle, row: Row, kind: PackingKind, tmp_path: Path) -> None:
    made = oracle(row)
    _same(*_both(made.folder, tmp_path / "out", kind), made.ids, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_widths_that_no_group_divides(kind: PackingKind, tmp_path: Path) -> None:
    odd = {"hidden_size": 45, "intermediate_size": 37, "num_attention_heads": 3, "head_dim": 10}
    config = {**odd, "num_key_value_heads": 3, "vocab_size": 33}
    write_tiny(tmp_path / "source", tiny_tensors(tiny_spec(**config)), config=config)
    memory, folder = _both(tmp_path / "source", tmp_path / "out", kind)
    _same(memory, folder, torch.tensor([[1, 32, 5, 0, 7]]), kind)


@pytest.mark.parametrize("kind", KINDS)
def test_a_head_of_its_own_that_the_config_ties(kind: PackingKind, tmp_path: Path) -> None:
    tensors = tiny_tensors()
    assert not torch.equal(tensors["lm_head.weight"], tensors["model.embed_tokens.weight"])
    write_tiny(tmp_path / "source", tensors, config={"tie_word_embeddings": True})
    memory, folder = _both(tmp_path / "source", tmp_path / "out", kind)
    assert not folder.spec.tie_embeddings
    _same(memory, folder, torch.tensor([[1, 300, 5, 0, 7]]), kind)
