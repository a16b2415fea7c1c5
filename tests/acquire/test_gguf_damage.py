"""Damaged, hostile and unsupported GGUF files: one clear line each, and nothing written."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import gguf
import numpy as np
import pytest

from llmcli.acquire.gguf.reader import read_gguf
from llmcli.acquire.gguf_import import convert
from llmcli.errors import AcquireError, CheckpointError

from .ggufs import Shape, random_tensors, write_gguf


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return write_gguf(tmp_path_factory.mktemp("gguf") / "m.gguf").read_bytes()


def refused(folder: Path, content: bytes) -> str:
    (folder / "bad.gguf").write_bytes(content)
    with pytest.raises(CheckpointError) as caught:
        convert(folder / "bad.gguf", folder / "out")
    assert not (folder / "out").exists()
    assert "\n" not in caught.value.message
    assert caught.value.message.isprintable()
    assert caught.value.hint
    return caught.value.message


def preamble(tensors: int = 0, keys: int = 0, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, keys)


def key(name: bytes, kind: int, value: bytes) -> bytes:
    return struct.pack("<Q", len(name)) + name + struct.pack("<I", kind) + value


def text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


ARCH = key(b"general.architecture", 8, text(b"llama"))


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"", "0 bytes"),
        (b"GG", "2 bytes"),
        (b"GGUF", "bytes of header"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "begins with 'vers'"),
        (b"\x1b[2J<html>", r"begins with '\\x1b"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
        (preamble(version=9), "version 9; 2 and 3"),
        (preamble(version=1), "version 1"),
        (preamble(tensors=2**62), "for tensors where"),
        (preamble(keys=2**62), "for keys where"),
        (preamble(keys=1) + struct.pack("<Q", 2**60) + b"x" * 40, "bytes of text"),
        (preamble(keys=1) + key(b"a", 99, b"\0" * 9), "unknown type 99"),
        (preamble(keys=1) + key(b"a", 9, struct.pack("<IQ", 5, 2**60)), "values of a"),
        (preamble(keys=1) + key(b"a", 9, struct.pack("<IQ", 8, 2**60)), "texts of a"),
        (preamble(keys=1) + key(b"a", 9, struct.pack("<IQ", 9, 1)), "array of the unknown type 9"),
        (preamble(keys=1) + key(b"a", 8, text(b"\xff\xfe")), "not UTF-8"),
        (preamble(keys=2) + key(b"a\n", 0, b"1") * 2, r"the key a\\n twice"),
        (preamble(keys=1) + ARCH.replace(b"llama", b"m\x1b[mb"), r"architecture 'm\\x1b\[mb'"),
        (preamble(keys=1) + key(b"general.architecture", 4, b"\0" * 4), "is int, not str"),
        (preamble(keys=1) + ARCH, "no tensor token_embd|holds no llama"),
        (preamble(keys=1) + key(b"general.alignment", 4, struct.pack("<I", 24)), "24, not a power"),
        (preamble(keys=1) + key(b"split.count", 2, struct.pack("<H", 3)), "one of 3 parts"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_hostile_headers(tmp_path: Path, content: bytes, match: str):
    assert re.search(match, refused(tmp_path, content))


def entry(name: bytes, dims: tuple[int, ...], kind: int, offset: int) -> bytes:
    return (
        text(name)
        + struct.pack("<I", len(dims))
        + struct.pack(f"<{len(dims)}Q", *dims)
        + struct.pack("<IQ", kind, offset)
    )


@pytest.mark.parametrize(
    ("entries", "match"),
    [
        ([entry(b"t", (4,), 0, 0), entry(b"t", (4,), 0, 0)], "tensor t twice"),
        ([entry(b"t", (2**62, 4), 0, 0)], "tensor t ends at byte"),
        ([entry(b"t", (4,), 0, 2**63)], "tensor t ends at byte"),
        ([entry(b"t", (4,), 77, 0)], "unknown type 77"),
        ([entry(b"t", (33,), 8, 0)], "rows of 33 values; Q8_0 stores blocks of 32"),
        ([entry(b"t\x07", (), 0, 0)], r"tensor t\\x07 has 0 dimensions"),
        ([entry(b"t", (1,) * 5, 0, 0)], "5 dimensions"),
    ],
)
def test_hostile_tensor_lists(tmp_path: Path, entries: list[bytes], match: str):
    content = preamble(tensors=len(entries), keys=1) + ARCH + b"".join(entries) + b"\0" * 128
    assert re.search(match, refused(tmp_path, content))


def test_cut_anywhere_is_one_line(tmp_path: Path, sound: bytes):
    for size in [*range(1, 400, 7), *range(400, len(sound), len(sound) // 25), len(sound) - 1]:
        refused(tmp_path, sound[:size])


def test_flipped_bytes_never_crash(tmp_path: Path, sound: bytes):
    """Any single damaged header byte either still reads or is refused; no other error."""
    header = sound[:6000]
    rng = np.random.default_rng(0)
    for at in [*range(0, 250, 3), *rng.integers(0, len(header), 120)]:
        bad = bytearray(sound)
        bad[at] ^= 0xFF
        (tmp_path / "bad.gguf").write_bytes(bad)
        with suppress(CheckpointError):
            convert(tmp_path / "bad.gguf", tmp_path / "out")


def test_not_a_file(tmp_path: Path):
    for path in (tmp_path, tmp_path / "nothing.gguf"):
        with pytest.raises(CheckpointError, match="cannot be read"):
            read_gguf(path)


Change = Callable[[dict[str, np.ndarray]], object]


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda t: t.pop("blk.1.attn_k.weight"), r"lacks tensors: blk\.1\.attn_k\.weight"),
        (lambda t: t.pop("output_norm.weight"), r"lacks tensors: output_norm\.weight"),
        (lambda t: t.pop("token_embd.weight"), r"no tensor token_embd\.weight"),
        (lambda t: t.update({"blk.2.attn_norm.weight": np.ones(64, "f")}), r"no place for: blk\.2"),
        (lambda t: t.update({"blk.0.attn_q_norm.weight": np.ones(16, "f")}), "attn_q_norm"),
        (lambda t: t.update({"blk.0.attn_q.bias": np.ones(64, "f")}), "bias in attn_q but not"),
        (lambda t: t.update({"blk.0.attn_q.weight": np.ones((32, 64), "f")}), r"\[32, 64\].*\[64"),
        (lambda t: t.update({"rope_freqs.weight": np.ones(5, "f")}), "5 factors for 8"),
    ],
)
def test_tensors_that_do_not_fit(tmp_path: Path, change: Change, match: str):
    tensors = random_tensors(Shape())
    change(tensors)
    write_gguf(tmp_path / "m.gguf", tensors=tensors)
    with pytest.raises(CheckpointError, match=match):
        convert(tmp_path / "m.gguf", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("extra", "match"),
    [
        ({"llama.expert_count": 8}, "mixture of 8 experts"),
        ({"llama.attention.key_length": 32}, "head size 32|asks for"),
        ({"llama.attention.value_length": 8}, "value_length is 8, the head size 16"),
        ({"llama.rope.scaling.type": "yarn"}, "rotary scaling 'yarn'"),
    ],
)
def test_variants_that_cannot_be_imported(tmp_path: Path, extra: dict[str, object], match: str):
    write_gguf(tmp_path / "m.gguf", extra=extra)
    with pytest.raises(CheckpointError, match=match):
        convert(tmp_path / "m.gguf", tmp_path / "out")


def test_other_architecture_is_refused_with_the_known_ones(tmp_path: Path):
    write_gguf(tmp_path / "m.gguf", arch="mamba")
    with pytest.raises(CheckpointError, match="mamba") as caught:
        convert(tmp_path / "m.gguf", tmp_path / "out")
    assert "llama" in caught.value.hint


def test_unreadable_quantisation_is_refused_by_name(tmp_path: Path, monkeypatch):
    write_gguf(tmp_path / "m.gguf", kinds=["Q5_0"])
    sound_one = gguf.dequantize

    def no_q5(data: np.ndarray, kind: gguf.GGMLQuantizationType) -> np.ndarray:
        if kind.name == "Q5_0":
            raise NotImplementedError
        return sound_one(data, kind)

    monkeypatch.setattr(gguf, "dequantize", no_q5)
    with pytest.raises(CheckpointError, match="stored as Q5_0") as caught:
        convert(tmp_path / "m.gguf", tmp_path / "out")
    assert "Q8_0" in caught.value.hint


def test_integer_tensor_is_refused(tmp_path: Path):
    tensors = random_tensors(Shape())
    path = write_gguf(tmp_path / "m.gguf", tensors=tensors)
    content = path.read_bytes()
    name = b"blk.0.attn_norm.weight"
    at = content.index(name) + len(name) + 4 + 8
    assert content[at : at + 4] == struct.pack("<I", 0)
    path.write_bytes(content[:at] + struct.pack("<I", 26) + content[at + 4 :])
    with pytest.raises(CheckpointError, match=r"attn_norm\.weight is stored as I32"):
        convert(path, tmp_path / "out")


def test_folder_with_other_files_is_refused(tmp_path: Path, sound: bytes):
    (tmp_path / "m.gguf").write_bytes(sound)
    convert(tmp_path / "m.gguf", tmp_path / "out")
    convert(tmp_path / "m.gguf", tmp_path / "out", dtype="float32")
    (tmp_path / "out/model-00001-of-00002.safetensors").write_bytes(b"")
    with pytest.raises(AcquireError, match="holds other files: model-00001-of-00002"):
        convert(tmp_path / "m.gguf", tmp_path / "out")
    (tmp_path / "file").write_text("")
    with pytest.raises(AcquireError, match=r"file cannot be written: "):
        convert(tmp_path / "m.gguf", tmp_path / "file")


def test_damaged_file_leaves_the_old_checkpoint_alone(tmp_path: Path, sound: bytes):
    (tmp_path / "m.gguf").write_bytes(sound)
    convert(tmp_path / "m.gguf", tmp_path / "out")
    before = {p.name: p.read_bytes() for p in (tmp_path / "out").iterdir()}
    (tmp_path / "m.gguf").write_bytes(sound[:-100])
    with pytest.raises(CheckpointError):
        convert(tmp_path / "m.gguf", tmp_path / "out")
    assert {p.name: p.read_bytes() for p in (tmp_path / "out").iterdir()} == before
