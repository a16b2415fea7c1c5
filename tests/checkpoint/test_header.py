"""E3, E4: cut, foreign and hostile files are refused by name before anything is allocated."""

from __future__ import annotations

import json
import time
import tracemalloc
from pathlib import Path
from unittest import mock

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from llmcli.checkpoint.header import DTYPE_BITS, read_header
from llmcli.errors import CheckpointError
from tests.checkpoint.files import DATA, GOOD, entry, packed, write

SOUND = packed(GOOD, DATA)


def _refusal(path: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        read_header(path)
    message = caught.value.message
    assert path.name in message
    assert message.isprintable(), message
    assert len(message) < 600
    assert caught.value.hint
    return message


# sound files


def test_sound_file(tmp_path: Path) -> None:
    header = read_header(write(tmp_path / "m.safetensors", SOUND))
    assert list(header.tensors) == ["a", "b"]
    b = header.tensors["b"]
    assert (b.dtype, b.shape, b.nbytes) == ("F32", (2,), 8)
    assert SOUND[b.start : b.end] == DATA[16:24]


def test_what_the_library_writes(tmp_path: Path) -> None:
    tensors = {
        "scalar": torch.tensor(1.0),
        "empty": torch.empty(0, 7),
        "half": torch.ones(3, dtype=torch.bfloat16),
        "whole": torch.arange(5),
        "eight": torch.ones(4).to(torch.float8_e4m3fn),
        "flags": torch.tensor([True, False]),
    }
    save_file(tensors, tmp_path / "m.safetensors", metadata={"format": "pt", "é": "\n"})
    header = read_header(tmp_path / "m.safetensors")
    assert {name: list(one.shape) for name, one in header.tensors.items()} == {
        name: list(tensor.shape) for name, tensor in tensors.items()
    }
    assert header.metadata == {"format": "pt", "é": "\n"}


def test_every_dtype(tmp_path: Path) -> None:
    for dtype, bits in DTYPE_BITS.items():
        content = packed({"a": entry(dtype, [8], 0, bits)}, bytes(bits))
        assert read_header(write(tmp_path / dtype, content)).tensors["a"].nbytes == bits


def test_every_first_byte_of_the_header_length(tmp_path: Path) -> None:
    """The length's low byte may be any character: "<", a space, "{", a newline."""
    for spaces in range(256):
        text = json.dumps(GOOD) + " " * spaces
        read_header(write(tmp_path / "m.safetensors", packed(text, DATA)))


def test_listing_needs_no_data_read(tmp_path: Path) -> None:
    """A file of 8 GB (sparse) is listed in no time."""
    path = write(tmp_path / "m.safetensors", packed({"a": entry("F32", [2**31], 0, 2**33)}))
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size + 2**33)
    started = time.perf_counter()
    assert read_header(path).tensors["a"].nbytes == 2**33
    assert time.perf_counter() - started < 1


# cut and foreign files


POINTER = (
    b"version https://git-lfs.github.com/spec/v1\n"
    b"oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\n"
    b"size 12345\n"
)


def test_pointer(tmp_path: Path) -> None:
    assert len(POINTER) < 140
    path = write(tmp_path / "m.safetensors", POINTER)
    message = _refusal(path)
    assert "git-lfs pointer" in message
    assert str(len(POINTER)) in message
    with pytest.raises(CheckpointError) as caught:
        read_header(path)
    assert "git lfs pull" in caught.value.hint


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", ["0 bytes", "too few"]),
        (b"\x00" * 7, ["7 bytes", "too few"]),
        (SOUND[:20], ["cut", "20"]),
        (SOUND[: len(SOUND) - 1], ["cut", str(len(SOUND) - 1), str(len(SOUND))]),
        (SOUND[: len(SOUND) - 24], ["cut"]),
        (SOUND + b"x", ["1 bytes after", str(len(SOUND) + 1)]),
        (b"<!DOCTYPE html><html>sign in</html>", ["web page"]),
        (b"\n  <html></html>", ["web page"]),
        (b"PK\x03\x04" + b"\x00\x00\xff\xff" * 40, ["does not begin like a safetensors file"]),
        (b"GGUF\x03\x00\x00\x00" * 8, ["does not begin like"]),
        (b"\x00" * 200, ["not JSON"]),
        ((2**40).to_bytes(8, "little") + b"x" * 92, [str(2**40), "limit"]),
        ((2**64 - 1).to_bytes(8, "little") + b"x" * 92, [str(2**64 - 1)]),
    ],
)
def test_cut_or_foreign(tmp_path: Path, content: bytes, words: list[str]) -> None:
    message = _refusal(write(tmp_path / "m.safetensors", content))
    assert all(word in message for word in words), message


def test_every_cut_is_refused(tmp_path: Path) -> None:
    for length in range(len(SOUND)):
        _refusal(write(tmp_path / "m.safetensors", SOUND[:length]))


def test_directory(tmp_path: Path) -> None:
    (tmp_path / "m.safetensors").mkdir()
    assert "directory" in _refusal(tmp_path / "m.safetensors").lower()


def test_absent(tmp_path: Path) -> None:
    assert "No such file" in _refusal(tmp_path / "m.safetensors")


def test_no_permission(tmp_path: Path) -> None:
    """Patched, as root may read everything."""
    path = write(tmp_path / "m.safetensors", SOUND)
    with mock.patch.object(Path, "open", side_effect=PermissionError(13, "Permission denied")):
        assert "Permission denied" in _refusal(path)


# hostile headers


HUGE = 10**4299


@pytest.mark.parametrize(
    ("header", "word"),
    [
        ('{"a": %s, "a": %s}' % ((json.dumps(GOOD["a"]),) * 2), "`a` twice"),
        ('{"a": {"dtype": "F32", "dtype": "F32", "shape": [6], "data_offsets": [0, 24]}}', "twice"),
        ({"a": entry("F32", [4], 0, 16), "b": entry("F32", [4], 8, 24)}, "overlaps"),
        ({"a": entry("F32", [6], 0, 24), "b": entry("F32", [6], 0, 24)}, "overlaps"),
        ({"a": entry("F32", [2], 0, 8), "b": entry("F32", [2], 16, 24)}, "hole"),
        ({"a": entry("F32", [2], 16, 24)}, "hole"),
        ({"a": entry("F32", [5], 0, 20)}, "4 bytes after"),
        ({"a": entry("F32", [2**62, 4], 0, 24)}, "needs"),
        ({"a": entry("F32", [2**62, 4], 0, 2**66)}, "range"),
        ({"a": entry("F32", [2**64], 0, 24)}, "shape"),
        ({"a": entry("F32", [0, 2**62, 4], 0, 24)}, "needs 0"),
        ({"a": entry("F32", [-6], 0, 24)}, "shape"),
        ({"a": entry("F32", [-2, -3], 0, 24)}, "shape"),
        ({"a": entry("F32", [6.0], 0, 24)}, "shape"),
        ({"a": entry("F32", [True] * 6, 0, 24)}, "shape"),
        ({"a": entry("F32", ["6"], 0, 24)}, "shape"),
        ({"a": {**GOOD["a"], "shape": 4}}, "shape"),
        ({"a": entry("F32", [1] * 10_000, 0, 4)}, "shape"),
        ({"a": entry("F32", [6], -24, 0)}, "range"),
        ({"a": entry("F32", [6], 24, 0)}, "range"),
        ({"a": entry("F32", [6], 0, 24.0)}, "range"),
        ({"a": {**GOOD["a"], "data_offsets": [0]}}, "range"),
        ({"a": {**GOOD["a"], "data_offsets": [0, 8, 16]}}, "range"),
        ({"a": {**GOOD["a"], "data_offsets": None}}, "range"),
        ({"a": entry("F33", [6], 0, 24)}, "unknown dtype 'F33'"),
        ({"a": entry("f32", [6], 0, 24)}, "unknown dtype"),
        ({"a": {**GOOD["a"], "dtype": ["F32"]}}, "unknown dtype"),
        ({"a": {"shape": [6], "data_offsets": [0, 24]}}, "unknown dtype None"),
        ({"a": entry("F4", [3], 0, 1)}, "needs 2"),
        ({"a": None}, "NoneType"),
        ({"a": 5}, "int"),
        ({"__metadata__": 5}, "__metadata__"),
        ([GOOD], "list"),
        ("3", "int"),
        ("null", "NoneType"),
        ("{", "not JSON"),
        ('{"a": 1} x', "not JSON"),
        (b'{"\xff": 1}', "not JSON"),
        ("[" * 200_000, "not JSON"),
        ('{"a":' * 100_000, "not JSON"),
        # Numbers that Python reads but will not print.
        ({"a": entry("F32", [HUGE, HUGE], 0, 24)}, "shape"),
        ({"a": entry("F32", [6], HUGE * 9, HUGE * 9 + 24)}, "range"),
        ({"a": entry("F32", [2] * 20_000, 0, 24)}, "shape"),
        ({"a": entry("F32", [2**62] * 64, 0, 24)}, "needs"),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 30 else "",
)
def test_hostile_header(tmp_path: Path, header: object, word: str) -> None:
    message = _refusal(write(tmp_path / "m.safetensors", packed(header, DATA)))
    assert word in message, message


def test_200_000_entries(tmp_path: Path) -> None:
    header = ",".join(f'"t{number}":0' for number in range(200_000))
    path = write(tmp_path / "m.safetensors", packed("{" + header + "}"))
    assert "200000 tensors, limit 100000" in _refusal(path)


def test_a_length_that_lies_allocates_nothing(tmp_path: Path) -> None:
    for length in (2**40, 99_999_999):
        path = write(tmp_path / "m.safetensors", packed("{}", b"x" * 90, length=length))
        tracemalloc.start()
        _refusal(path)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 1_000_000


@pytest.mark.parametrize(
    "name", ["a\nb", "\x1b[2J\x1b]52;c;aGk=\x07", "\x9b31m", "\u202e", "\ud800"]
)
def test_names_are_escaped_in_messages(tmp_path: Path, name: str) -> None:
    header = {name: entry("F33", [6], 0, 24)}
    message = _refusal(write(tmp_path / "m.safetensors", packed(header, DATA)))
    assert name not in message


def test_a_strange_name_is_kept_as_it_is(tmp_path: Path) -> None:
    path = write(tmp_path / "m.safetensors", packed({"a\n\x1b": entry("F32", [6], 0, 24)}, DATA))
    assert list(read_header(path).tensors) == ["a\n\x1b"]


# fuzz: whatever the bytes, a header or a CheckpointError


def _survives(path: Path, content: bytes) -> None:
    write(path, content)
    refusal, header = "", None
    try:
        header = read_header(path)
    except CheckpointError as error:
        refusal = error.message
    assert refusal.isprintable()
    if header is None:
        assert refusal
        return
    spans = sorted((one.start, one.end) for one in header.tensors.values())
    at = 8 + int.from_bytes(content[:8], "little")
    for start, end in spans:
        assert start == at
        at = end
    assert at == len(content)


fuzzed = settings(
    max_examples=120,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)

numbers = st.one_of(
    st.integers(-2, 30),
    st.sampled_from([2**31, 2**62, 2**63, 2**64, 10**4000, 1.0, None, True, "1", []]),
)
entries = st.fixed_dictionaries(
    {},
    optional={
        "dtype": st.sampled_from([*DTYPE_BITS, "F33", None, 1]),
        "shape": st.one_of(st.lists(numbers, max_size=4), numbers),
        "data_offsets": st.one_of(st.lists(numbers, max_size=3), numbers),
        "more": numbers,
    },
)
headers = st.dictionaries(
    st.one_of(st.sampled_from(["a", "__metadata__"]), st.text(max_size=4)),
    st.one_of(entries, numbers),
    max_size=4,
)


@fuzzed
@given(content=st.binary(max_size=200))
def test_fuzz_bytes(tmp_path: Path, content: bytes) -> None:
    _survives(tmp_path / "m.safetensors", content)


@fuzzed
@given(text=st.binary(max_size=100), data=st.binary(max_size=30))
def test_fuzz_header_text(tmp_path: Path, text: bytes, data: bytes) -> None:
    _survives(tmp_path / "m.safetensors", packed(text, data))


@fuzzed
@given(header=headers, data=st.binary(max_size=30))
def test_fuzz_header_values(tmp_path: Path, header: dict[str, object], data: bytes) -> None:
    _survives(tmp_path / "m.safetensors", packed(header, data))


@fuzzed
@given(at=st.integers(0, len(SOUND) - 1), byte=st.integers(0, 255))
def test_fuzz_one_byte_of_a_sound_file(tmp_path: Path, at: int, byte: int) -> None:
    _survives(tmp_path / "m.safetensors", SOUND[:at] + bytes([byte]) + SOUND[at + 1 :])
