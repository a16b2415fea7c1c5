"""E1, E6, E7: tied heads, weights that do not fit, quantised ones; refused before any is read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from llmcli.checkpoint.directory import ModelDir
from llmcli.checkpoint.tensors import TensorFiles
from llmcli.engine.load import Loaded, load_decoder
from llmcli.errors import CheckpointError, UnsupportedError
from llmcli.model import Decoder
from llmcli.spec import count_parameters, parameter_shapes
from tests.checkpoint.files import entry, packed
from tests.tiny import TINY, tiny_spec, tiny_tensors, write_tiny

IDS = torch.tensor([[1, 2, 3]])


def _load(directory: ModelDir, **options: Any) -> Loaded:
    return load_decoder(directory, **{"device": "cpu", "dtype": "float32", **options})


@pytest.fixture
def no_reads() -> Iterator[None]:
    """Any read of a weight is an error of another kind than the one expected."""
    with mock.patch.object(TensorFiles, "read", side_effect=AssertionError("a weight was read")):
        yield


def _refusal(directory: ModelDir) -> CheckpointError:
    with pytest.raises(CheckpointError) as caught:
        _load(directory)
    assert caught.value.message.isprintable()
    assert caught.value.hint
    return caught.value


# E1: tied heads


def _with_head(head: str) -> dict[str, Tensor]:
    tensors = tiny_tensors()
    if head == "absent":
        del tensors["lm_head.weight"]
    if head == "equal":
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
    return tensors


def _logits(loaded: Loaded) -> Tensor:
    with torch.inference_mode():
        logits: Tensor = loaded.decoder(IDS)
    return logits


@pytest.mark.parametrize(
    ("flag", "head", "outcome"),
    [
        (True, "absent", "tied"),
        (True, "equal", "tied"),
        (True, "different", "untied with a warning"),
        (False, "absent", "refused"),
        (False, "equal", "untied"),
        (False, "different", "untied"),
        (..., "absent", "refused"),
        (..., "equal", "untied"),
        (..., "different", "untied"),
    ],
)
def test_tied_heads(tmp_path: Path, flag: object, head: str, outcome: str) -> None:
    tensors = _with_head(head)
    directory = write_tiny(tmp_path, tensors, config={"tie_word_embeddings": flag})
    if outcome == "refused":
        assert "missing: lm_head.weight" in _refusal(directory).message
        return
    loaded = _load(directory)
    tied = outcome == "tied"
    assert loaded.spec.tie_embeddings is tied
    assert (loaded.decoder.lm_head.weight is None) is tied
    expected = [] if "warning" not in outcome else ["lm_head"]
    assert [word for word in expected if word in " ".join(loaded.warnings)] == expected
    assert len(loaded.warnings) == len(expected)
    # The head that counts is the file's own wherever there is one.
    head_weight = tensors.get("lm_head.weight", tensors["model.embed_tokens.weight"])
    with torch.inference_mode():
        decoder = loaded.decoder
        stream = torch.randn(1, 1, 64, generator=torch.Generator().manual_seed(0))
        expected_logits = torch.nn.functional.linear(decoder.norm(stream), head_weight)
        assert torch.allclose(decoder.unembed(stream), expected_logits, atol=1e-4)


def test_tied_head_has_one_storage_and_counts_once(tmp_path: Path) -> None:
    directory = write_tiny(tmp_path, _with_head("equal"), config={"tie_word_embeddings": True})
    loaded = _load(directory)
    assert "lm_head.weight" not in dict(loaded.decoder.named_parameters())
    held = sum(one.numel() for one in loaded.decoder.parameters())
    assert held == count_parameters(loaded.spec)
    assert held == count_parameters(tiny_spec()) - 320 * 64


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16, torch.float64])
def test_tied_head_stored_in_another_dtype(tmp_path: Path, kind: torch.dtype) -> None:
    tensors = tiny_tensors()
    half = tensors["model.embed_tokens.weight"].bfloat16()
    tensors["model.embed_tokens.weight"] = half
    tensors["lm_head.weight"] = half.clone().to(kind)
    loaded = _load(write_tiny(tmp_path, tensors, config={"tie_word_embeddings": True}))
    # bfloat16 fits into the wider kinds; float16 keeps some values only nearly.
    assert loaded.spec.tie_embeddings or kind == torch.float16


@pytest.mark.usefixtures("no_reads")
def test_tied_head_in_eight_bits_is_refused(tmp_path: Path) -> None:
    tensors = tiny_tensors()
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].to(torch.float8_e4m3fn)
    directory = write_tiny(tmp_path, tensors, config={"tie_word_embeddings": True})
    with pytest.raises(UnsupportedError, match=r"lm_head\.weight \(F8_E4M3\)"):
        _load(directory)


def test_tied_head_of_another_shape_is_refused(tmp_path: Path) -> None:
    tensors = tiny_tensors()
    tensors["lm_head.weight"] = torch.ones(321, 64)
    directory = write_tiny(tmp_path, tensors, config={"tie_word_embeddings": True})
    message = _refusal(directory).message
    assert "lm_head.weight is [321, 64], config says [320, 64]" in message


# E6: what does not fit

LAYER = "model.layers.1."
Change = Callable[[dict[str, Tensor]], object]


def _prefixed(tensors: dict[str, Tensor]) -> None:
    renamed = {f"language_model.{name}": tensor for name, tensor in tensors.items()}
    tensors.clear()
    tensors.update(renamed)


def _without_layer_1(tensors: dict[str, Tensor]) -> None:
    for name in [name for name in tensors if name.startswith(LAYER)]:
        del tensors[name]


FAULTS: dict[str, tuple[Change, list[str]]] = {
    "an unknown norm": (
        lambda t: t.update({LAYER + "self_attn.q_norm.weight": torch.ones(16)}),
        ["unexpected: model.layers.1.self_attn.q_norm.weight [16]"],
    ),
    "a norm less": (
        lambda t: t.pop(LAYER + "input_layernorm.weight"),
        ["missing: model.layers.1.input_layernorm.weight"],
    ),
    "the last norm missing": (lambda t: t.pop("model.norm.weight"), ["model.norm.weight"]),
    "a bias more": (
        lambda t: t.update({LAYER + "self_attn.q_proj.bias": torch.ones(64)}),
        ["unexpected: model.layers.1.self_attn.q_proj.bias [64]"],
    ),
    "another prefix": (
        _prefixed,
        ["missing: model.embed_tokens.weight", "unexpected: language_model."],
    ),
    "a wrong shape": (
        lambda t: t.update({LAYER + "mlp.up_proj.weight": torch.ones(128, 63)}),
        ["misshapen: model.layers.1.mlp.up_proj.weight is [128, 63], config says [128, 64]"],
    ),
    "a transposed matrix": (
        lambda t: t.update({LAYER + "mlp.up_proj.weight": torch.ones(64, 128)}),
        ["is [64, 128], config says [128, 64]"],
    ),
    "a layer missing": (_without_layer_1, ["missing: model.layers.1.input_layernorm.weight", "+3"]),
    "a layer more": (
        lambda t: t.update({"model.layers.2.input_layernorm.weight": torch.ones(64)}),
        ["unexpected: model.layers.2.input_layernorm.weight"],
    ),
    "all three": (
        lambda t: t.update(
            {"model.norm.weight": torch.ones(63), "x\x1b\n": t.pop("model.embed_tokens.weight")}
        ),
        ["missing: model.embed_tokens.weight", "unexpected: x\\x1b\\n", "misshapen: model.norm"],
    ),
    "nothing at all": (lambda t: t.clear(), ["missing: model.embed_tokens.weight", "+15 more"]),
}


@pytest.mark.usefixtures("no_reads")
@pytest.mark.parametrize("fault", FAULTS)
def test_what_does_not_fit_is_listed(tmp_path: Path, fault: str) -> None:
    change, words = FAULTS[fault]
    tensors = tiny_tensors()
    change(tensors)
    message = _refusal(write_tiny(tmp_path, tensors)).message
    assert "config.json" in message
    assert all(word in message for word in words), message


def test_known_buffers_are_harmless(tmp_path: Path) -> None:
    plain = _load(write_tiny(tmp_path / "plain"))
    tensors = tiny_tensors()
    for layer in range(2):
        tensors[f"model.layers.{layer}.self_attn.rotary_emb.inv_freq"] = torch.ones(8)
    loaded = _load(write_tiny(tmp_path / "buffers", tensors))
    assert loaded.warnings == ()
    assert torch.allclose(_logits(loaded), _logits(plain), atol=1e-5)


def test_file_without_a_prefix(tmp_path: Path) -> None:
    plain = _load(write_tiny(tmp_path / "plain"))
    bare = {name.removeprefix("model."): tensor for name, tensor in tiny_tensors().items()}
    assert torch.allclose(
        _logits(_load(write_tiny(tmp_path / "bare", bare))), _logits(plain), atol=1e-5
    )


def test_no_parameter_is_left_without_weights(tmp_path: Path) -> None:
    decoder = _load(write_tiny(tmp_path)).decoder
    assert not any(one.is_meta for one in (*decoder.parameters(), *decoder.buffers()))
    assert {name: tuple(one.shape) for name, one in decoder.named_parameters()} == dict(
        parameter_shapes(decoder.spec)
    )
    parameters = list(decoder.named_parameters())
    with pytest.raises(AssertionError, match="without weights"):
        Decoder.filled(decoder.spec, parameters[1:])
    with pytest.raises(KeyError, match="rubbish"):
        Decoder.filled(decoder.spec, [*parameters, ("norm.rubbish", torch.ones(1))])


# E7: quantised


@pytest.mark.usefixtures("no_reads")
@pytest.mark.parametrize("method", ["gptq", "awq", "fp8", "compressed-tensors", "n\x1bew", 5, None])
@pytest.mark.parametrize("key", ["quantization_config", "compression_config", "quantization"])
def test_quantised_is_refused_by_name(tmp_path: Path, key: str, method: object) -> None:
    """Even where all shapes happen to fit."""
    settings = {"quant_method": method, "bits": 4}
    with pytest.raises(UnsupportedError) as caught:
        _load(write_tiny(tmp_path, config={key: settings}))
    assert "quantised" in caught.value.message
    assert str(method).replace("\x1b", "\\x1b") in caught.value.message


@pytest.mark.usefixtures("no_reads")
@pytest.mark.parametrize("settings", [{"bits": 4}, "awq", ["awq"]])
def test_quantised_without_a_method_is_refused(tmp_path: Path, settings: object) -> None:
    with pytest.raises(UnsupportedError, match="quantised"):
        _load(write_tiny(tmp_path, config={"quantization_config": settings}))


@pytest.mark.usefixtures("no_reads")
@pytest.mark.parametrize("with_scale", [True, False])
def test_eight_bit_floats_are_refused(tmp_path: Path, with_scale: bool) -> None:
    tensors = tiny_tensors()
    name = LAYER + "mlp.up_proj.weight"
    tensors[name] = tensors[name].to(torch.float8_e4m3fn)
    if with_scale:
        tensors[name + "_scale_inv"] = torch.ones(1, 1)
    error = _refusal(write_tiny(tmp_path, tensors))
    assert ("weight_scale_inv" if with_scale else "F8_E4M3") in error.message


@pytest.mark.usefixtures("no_reads")
@pytest.mark.parametrize("kind", [torch.int8, torch.uint8, torch.int32, torch.bool])
def test_integers_are_refused(tmp_path: Path, kind: torch.dtype) -> None:
    tensors = tiny_tensors()
    name = LAYER + "mlp.up_proj.weight"
    tensors[name] = tensors[name].to(kind)
    with pytest.raises(UnsupportedError) as caught:
        _load(write_tiny(tmp_path, tensors))
    assert name in caught.value.message


# the order: config and headers first


@pytest.mark.usefixtures("no_reads")
def test_unsupported_family_is_refused_before_the_weights_are_even_listed(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**TINY, "model_type": "mamba"}))
    with pytest.raises(UnsupportedError, match="mamba"):
        _load(ModelDir.open(tmp_path))


@pytest.mark.usefixtures("no_reads")
def test_a_damaged_file_is_refused_unread(tmp_path: Path) -> None:
    directory = write_tiny(tmp_path)
    path = tmp_path / "model.safetensors"
    content = path.read_bytes()
    for damaged in (b"", content[:7], content[:100], content[:-1], content + b"x"):
        path.write_bytes(damaged)
        assert "model.safetensors" in _refusal(directory).message


def test_reads_are_seen_by_the_fixture(tmp_path: Path, no_reads: None) -> None:
    with pytest.raises(AssertionError, match="a weight was read"):
        _load(write_tiny(tmp_path))


def test_a_file_that_changes_after_its_header_was_read(tmp_path: Path) -> None:
    directory = write_tiny(tmp_path)
    stored = directory.tensors()
    save_file({"other": torch.ones(3)}, tmp_path / "model.safetensors")
    with (
        mock.patch.object(ModelDir, "tensors", return_value=stored),
        pytest.raises(CheckpointError, match=r"model\.safetensors cannot be read"),
    ):
        _load(directory)


def test_huge_sizes_in_a_config_allocate_nothing(tmp_path: Path) -> None:
    for key in ("vocab_size", "hidden_size", "intermediate_size", "max_position_embeddings"):
        directory = write_tiny(tmp_path / key, config={key: 2**40})
        if key == "max_position_embeddings":
            assert _load(directory).spec.max_positions == 2**40
        else:
            assert "do not fit" in _refusal(directory).message


def test_names_with_control_codes_in_a_sound_header(tmp_path: Path) -> None:
    directory = write_tiny(tmp_path)
    header = {"\x1b[2J\n": entry("F32", [1], 0, 4)}
    (tmp_path / "model.safetensors").write_bytes(packed(header, bytes(4)))
    assert "\\x1b[2J\\n" in _refusal(directory).message


# what is loaded


@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("wanted", ["float32", "bfloat16", "float16"])
def test_dtypes(tmp_path: Path, stored: torch.dtype, wanted: str) -> None:
    tensors = {name: tensor.to(stored) for name, tensor in tiny_tensors().items()}
    loaded = _load(write_tiny(tmp_path, tensors), dtype=wanted)
    kind = getattr(torch, wanted)
    assert {one.dtype for one in loaded.decoder.parameters()} == {kind}
    expected = tensors["model.norm.weight"].to(kind)
    assert torch.equal(loaded.decoder.get_parameter("norm.weight"), expected)
    assert loaded.dtype_reason == "asked for"


def test_progress_counts_every_byte(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    _load(write_tiny(tmp_path), on_progress=lambda done, total: seen.append((done, total)))
    total = sum(one.nbytes for one in tiny_tensors().values())
    assert seen[-1] == (total, total)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert len(seen) == len(tiny_tensors())


def test_sharded_is_the_same_decoder(tmp_path: Path) -> None:
    single = _load(write_tiny(tmp_path / "single"))
    sharded = write_tiny(tmp_path / "sharded")
    (tmp_path / "sharded" / "model.safetensors").unlink()
    names = sorted(tiny_tensors())
    weight_map = {}
    for number, part in enumerate((names[::2], names[1::2])):
        shard = f"part-{number}.safetensors"
        save_file({name: tiny_tensors()[name] for name in part}, tmp_path / "sharded" / shard)
        weight_map.update(dict.fromkeys(part, shard))
    index = tmp_path / "sharded" / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": weight_map}))
    assert torch.allclose(_logits(_load(sharded)), _logits(single), atol=1e-5)
