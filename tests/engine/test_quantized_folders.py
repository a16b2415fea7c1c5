"""A quantised folder wherever it can be given: it is right there, or refused before it is read."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from llmcli.acquire.places import embedded
from llmcli.acquire.progress import Silent
from llmcli.acquire.resolve import Resolved
from llmcli.checkpoint.directory import ModelDir
from llmcli.checkpoint.tensors import TensorFiles
from llmcli.engine import packing as unpacking
from llmcli.engine.load import load_decoder
from llmcli.engine.quantizing import quantize
from llmcli.errors import LlmcliError, UsageError
from llmcli.model import Decoder
from llmcli.model.linear import Linear, Weighted
from llmcli.model.packed import pack
from llmcli.spec import PackingKind
from tests.cli.drive import run_here
from tests.tiny import stored_name, tiny_tensors, write_tiny

KINDS: list[PackingKind] = ["int8", "int4"]
IDS = torch.tensor([[1, 5, 2, 7, 3]])
STORY = "Once upon a time"


def _quantized(source: Path, out: Path, kind: PackingKind) -> Path:
    quantize(Resolved(source, "source", "folder"), out, kind, group=32, progress=Silent())
    return out


def _unpacked(decoder: Decoder) -> dict[str, Tensor]:
    """Every parameter as a plain tensor, under the names of a llama checkpoint."""
    found = {name: one.detach().clone() for name, one in decoder.named_parameters()}
    for name, module in decoder.named_modules():
        if isinstance(module, Weighted) and module.owns:
            found[f"{name}.weight"] = module.matrix().clone()
    return {stored_name(name): tensor for name, tensor in found.items()}


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """stories260k in 4 bits, and a plain checkpoint of the same numbers."""
    folder, source = tmp_path_factory.mktemp("twins"), embedded("stories260k")
    assert source is not None
    packed = _quantized(source, folder / "packed", "int4")
    decoder = load_decoder(ModelDir.open(packed), device="cpu").decoder
    shutil.copytree(source, folder / "plain")
    (folder / "plain/model.safetensors").unlink()
    save_file(_unpacked(decoder), folder / "plain/model.safetensors")
    return packed, folder / "plain"


def _logits(decoder: Decoder) -> Tensor:
    with torch.inference_mode():
        logits: Tensor = decoder(IDS, last_only=False)
    return logits


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_another_dtype(tmp_path: Path, kind: PackingKind, dtype: Any) -> None:
    write_tiny(tmp_path / "source")
    packed = _quantized(tmp_path / "source", tmp_path / "packed", kind)
    found = load_decoder(ModelDir.open(packed), device="cpu", dtype=dtype)
    write_tiny(tmp_path / "plain", _unpacked(load_decoder(ModelDir.open(packed)).decoder))
    plain = load_decoder(ModelDir.open(tmp_path / "plain"), device="cpu", dtype=dtype)
    assert found.decoder.dtype == plain.decoder.dtype == getattr(torch, dtype)
    assert found.dtype_reason == "asked for"
    # The same 16-bit numbers, multiplied block by block.
    torch.testing.assert_close(_logits(found.decoder), _logits(plain.decoder), atol=0, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16, torch.float16])
def test_what_is_chosen_is_told_rightly(
    tmp_path: Path, kind: PackingKind, stored: torch.dtype
) -> None:
    write_tiny(tmp_path / "source", {n: one.to(stored) for n, one in tiny_tensors().items()})
    packed = _quantized(tmp_path / "source", tmp_path / "packed", kind)
    found = load_decoder(ModelDir.open(packed), device="cpu")
    assert found.decoder.dtype == torch.float32
    assert found.dtype_reason == "auto: quantised matrices are multiplied in it"
    assert found.kernels == "torch (switched off), weights packed"
    bits = 8 if kind == "int8" else 4
    assert found.form is not None
    assert found.form.bits == bits
    assert found.quantized is None


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLMCLI_HOME", str(tmp_path / "home"))


@pytest.fixture
def unread() -> Iterator[None]:
    """No weight may be read."""
    with mock.patch.object(TensorFiles, "read", side_effect=AssertionError("weights were read")):
        yield


@pytest.mark.usefixtures("unread")
@pytest.mark.parametrize(
    "command",
    [
        "generate hi",
        "generate hi --compare greedy,sample",
        "generate hi -m stories260k --strategy speculative --draft-model PACKED",
        "chat --template TEMPLATE",
        "bench-cache",
        "inspect-layers --view lens hi",
        "inspect-layers --view plan",
    ],
)
def test_quantising_while_loading_is_refused(
    twins: tuple[Path, Path], command: str, tmp_path: Path
) -> None:
    template = tmp_path / "chat.jinja"
    template.write_text("{% for message in messages %}{{ message.content }}{% endfor %}")
    named = {"PACKED": str(twins[0]), "TEMPLATE": str(template)}
    words = [named.get(word, word) for word in command.split()]
    model = [] if "-m" in words else ["-m", str(twins[0])]
    found = run_here([*words, *model, "--quantize", "int8"], stdin=b"")
    assert found.code == 2
    assert "--quantize int8: packed is quantised already, in 4 bits" in found.err.replace(
        str(twins[0]), "packed"
    )
    assert found.out == ""


@pytest.mark.usefixtures("unread")
def test_quantising_it_again_is_refused(twins: tuple[Path, Path], tmp_path: Path) -> None:
    found = run_here(["quantize", str(twins[0]), str(tmp_path / "new"), "--bits", "8"])
    assert found.code == 2
    assert "is quantised already, to 4 bits" in found.err
    assert not (tmp_path / "new").exists()


VIEWS = {
    "attention": [STORY],
    "lens": [STORY],
    "attribution": [STORY],
    "positions": [],
    "superposition": ["--what", "mlp-out"],
    "neurons": [STORY],
    "ablate": [STORY, "--zero-head", "0.1", "--scale-mlp", "1=0.5", "--skip-layer", "2"],
    "neighbors": ["--token", " the"],
    "analogy": ["--token", "#300", "--token", "#301", "--token", "#302"],
    "next": [STORY],
    "params": [],
    "cache": [],
    "masks": [],
}


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_shows_what_it_shows_of_the_same_numbers(
    twins: tuple[Path, Path], view: str
) -> None:
    shown = []
    for folder in twins:
        found = run_here(
            ["inspect-layers", "-m", str(folder), "--view", view, "--json", *VIEWS[view]]
        )
        assert found.code == 0, found.err
        shown.append(json.loads(found.out.replace(folder.name, "it")))
    assert _near(*shown)


def _near(one: Any, other: Any) -> bool:
    """Equal but for the rounding of numbers."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_near(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_near, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return one == pytest.approx(other, rel=1e-3, abs=1e-4)
    return bool(one == other)


def test_a_receipt_of_it_is_replayed(twins: tuple[Path, Path], tmp_path: Path) -> None:
    receipt, model = tmp_path / "run.json", ["-m", str(twins[0])]
    made = run_here(["generate", *model, "--receipt", str(receipt), "-n", "12", STORY])
    assert made.code == 0, made.err
    again = run_here(["replay", str(receipt), *model])
    assert again.code == 0, again.err
    assert "identical" in again.out + again.err


def test_verbose_tells_how_the_file_holds_its_matrices(twins: tuple[Path, Path]) -> None:
    found = run_here(["generate", "-m", str(twins[0]), "-v", "-n", "2", STORY])
    assert "weights: quantised in the file, mostly to 4 bits" in found.err
    assert "dtype: float32 (auto: quantised matrices are multiplied in it)" in found.err


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_of_a_packed_matrix_stays_on_the_cpu(kind: PackingKind) -> None:
    """The meta device refuses to compute with tensors of another one."""
    elsewhere = torch.device("meta")
    linear = Linear(40, 24, bias=False)
    linear.hold(pack(torch.randn(24, 40), kind).to(elsewhere))
    assert linear.device == elsewhere
    made = linear.times(torch.empty(2, 40, device=elsewhere, dtype=torch.float16))
    assert (made.device, made.dtype, made.shape) == (elsewhere, torch.float16, (2, 24))
    rows = linear.rows(torch.zeros(1, 3, dtype=torch.int64, device=elsewhere))
    assert (rows.device, rows.shape) == (elsewhere, (1, 3, 40))


def test_a_device_that_unpacks_wrongly_is_refused() -> None:
    one = pack(torch.randn(8, 40), "int4")
    assert unpacking._unpacks_alike(one, one)
    assert not unpacking._unpacks_alike(one, pack(torch.randn(8, 40), "int4"))
    unpacking.require_unpacking(torch.device("cpu"))
    with (
        mock.patch.object(unpacking, "_unpacks_alike", return_value=False),
        pytest.raises(LlmcliError, match="device meta makes other numbers of int8 codes"),
    ):
        unpacking.require_unpacking(torch.device("meta"))


def test_quantising_a_quantised_folder_names_it(tmp_path: Path) -> None:
    write_tiny(tmp_path / "source")
    packed = _quantized(tmp_path / "source", tmp_path / "small", "int8")
    with pytest.raises(UsageError, match="int4: small is quantised already, in 8 bits"):
        load_decoder(ModelDir.open(packed), device="cpu", quantize="int4")
