"""Streaming twins of the `tokenizers` decoders: vocabulary pieces in, certain text out.

Each stage gives out only what no later piece can change, in time linear in its input.
Must not know ids, prompts, special tokens or stop strings.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from tokenizers import Regex, decoders
from tokenizers.decoders import Decoder

from llmcli.text.panics import decoded

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
BYTE_PIECE = re.compile(r"<0x([0-9A-Fa-f]{2}|\+[0-9A-Fa-f])>")


class Stage(Protocol):
    """One decoder of the chain. `finish(cut=True)` leaves out an incomplete last character."""

    def feed(self, piece: str) -> list[str]: ...

    def finish(self, *, cut: bool) -> list[str]: ...


class PieceDecoder:
    """The whole chain of one tokenizer; one object decodes one text."""

    def __init__(self, decoder: Decoder | None) -> None:
        self._stages = build_stages(decoder)

    def feed(self, piece: str) -> str:
        pieces = [piece]
        for stage in self._stages:
            pieces = [out for one in pieces for out in stage.feed(one)]
        return "".join(pieces)

    def finish(self, *, cut: bool = False) -> str:
        pieces: list[str] = []
        for stage in self._stages:
            pieces = [out for one in pieces for out in stage.feed(one)]
            pieces += stage.finish(cut=cut)
        return "".join(pieces)


class PerPiece:
    """A decoder that looks at one piece at a time, and at whether it is the first one."""

    def __init__(self, decode: Callable[[list[str]], str]) -> None:
        self._decode = decode
        self._started = False
        self._seen: dict[str, list[str]] = {}

    def feed(self, piece: str) -> list[str]:
        if not self._started:
            self._started = True
            return [decoded(self._decode, [piece])]
        found = self._seen.get(piece)
        if found is None:
            found = self._seen[piece] = [decoded(self._decode, ["a", piece])[1:]]
        return found

    def finish(self, *, cut: bool) -> list[str]:  # noqa: ARG002
        return []


class ByteLevel:
    """Pieces spelled in GPT-2's byte alphabet."""

    def __init__(self) -> None:
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def feed(self, piece: str) -> list[str]:
        return [self._utf8.decode(piece_bytes(piece))]

    def finish(self, *, cut: bool) -> list[str]:
        return [] if cut else [self._utf8.decode(b"", final=True)]


class ByteFallback:
    """Runs of <0xNN> pieces. One wrong byte spoils its whole run, so a run is held to its end."""

    def __init__(self) -> None:
        self._run = bytearray()

    def feed(self, piece: str) -> list[str]:
        match = BYTE_PIECE.fullmatch(piece) if piece.startswith("<0x") else None
        if match:
            self._run.append(int(match[1], 16))
            return []
        return [*self.finish(cut=False), piece] if self._run else [piece]

    def finish(self, *, cut: bool) -> list[str]:
        run, self._run = bytes(self._run), bytearray()
        try:
            text = codecs.utf_8_decode(run, "strict", not cut)[0]
        except UnicodeDecodeError:
            return [REPLACEMENT] * len(run)
        return [text] if text else []


class StripStart:
    """At most `count` of one character taken off the start of the whole text."""

    def __init__(self, content: str, count: int) -> None:
        self._content = content
        self._left = count

    def feed(self, piece: str) -> list[str]:
        if not self._left or not piece:
            return [piece]
        at = 0
        while at < len(piece) and self._left and piece[at] == self._content:
            at += 1
            self._left -= 1
        if at < len(piece):
            self._left = 0
        return [piece[at:]]

    def finish(self, *, cut: bool) -> list[str]:  # noqa: ARG002
        return []


class WordSuffix:
    """Pieces whose suffix is a space, but nothing on the last piece: that one is held."""

    def __init__(self, suffix: str) -> None:
        self._suffix = suffix
        self._held: str | None = None

    def feed(self, piece: str) -> list[str]:
        before, self._held = self._held, piece
        return [] if before is None else [before.replace(self._suffix, " ")]

    def finish(self, *, cut: bool) -> list[str]:  # noqa: ARG002
        return [] if self._held is None else [self._held.replace(self._suffix, "")]


class HoldAll:
    """A decoder without a streaming twin: its text comes whole, at the end."""

    def __init__(self, decode: Callable[[list[str]], str]) -> None:
        self._decode = decode
        self._pieces: list[str] = []

    def feed(self, piece: str) -> list[str]:
        self._pieces.append(piece)
        return []

    def finish(self, *, cut: bool) -> list[str]:  # noqa: ARG002
        return [decoded(self._decode, self._pieces)] if self._pieces else []


def piece_bytes(piece: str) -> bytes:
    """The bytes of a byte-level piece; a piece outside the byte alphabet is its own UTF-8."""
    try:
        return bytes([_BYTES[char] for char in piece])
    except KeyError:
        return piece.encode("utf-8", "replace")


def byte_level_piece(text: str) -> str:
    """A text as byte-level vocabularies spell it."""
    return "".join(_CHARS[byte] for byte in text.encode("utf-8"))


def decoder_kinds(decoder: Decoder | None) -> frozenset[str]:
    """The names of the decoders in the chain, such as "ByteLevel"."""
    return frozenset(str(state["type"]) for state in _states(decoder))


def build_stages(decoder: Decoder | None) -> list[Stage]:
    if decoder is None:
        return [PerPiece(" ".join)]
    stages: list[Stage] = []
    fused = False
    for state in _states(decoder):
        kind = state["type"]
        stage: Stage | None = None
        if kind == "Fuse":
            fused = True
            continue
        if fused:
            stage = _fused_stage(state)
        else:
            stage = _stage(state)
            fused = kind == "ByteLevel"
        if stage is None:
            return [HoldAll(decoder.decode)]
        stages.append(stage)
    return stages


def _fused_stage(state: Mapping[str, object]) -> Stage | None:
    match state:
        case {"type": "Strip", "content": str(char), "start": int(start), "stop": 0}:
            return StripStart(char, start)
    return None


def _stage(state: Mapping[str, object]) -> Stage | None:
    match state.get("type"), state:
        case "ByteLevel", _:
            return ByteLevel()
        case "ByteFallback", _:
            return ByteFallback()
        case "BPEDecoder", {"suffix": str(suffix)}:
            return WordSuffix(suffix)
        case "Metaspace", {"replacement": str(char), "prepend_scheme": str(scheme)}:
            if char == "a":
                return None
            return PerPiece(decoders.Metaspace(replacement=char, prepend_scheme=scheme).decode)
        case "WordPiece", {"prefix": str(prefix), "cleanup": bool(cleanup)}:
            return PerPiece(decoders.WordPiece(prefix=prefix, cleanup=cleanup).decode)
        case "Replace", {"pattern": {"String": str(old)}, "content": str(new)} if old:
            return EachPiece(lambda piece: piece.replace(old, new))
        case "Replace", {"pattern": {"Regex": str(pattern)}, "content": str(new)}:
            replace = decoders.Replace(Regex(pattern), new)
            return EachPiece(lambda piece: replace.decode([piece]))
        case "Strip", {"content": str(char), "start": int(start), "stop": int(stop)}:
            strip = decoders.Strip(char, start, stop)
            return EachPiece(lambda piece: strip.decode([piece]))
    return None


class EachPiece:
    """A decoder that maps every piece alike."""

    def __init__(self, change: Callable[[str], str]) -> None:
        self._change = change
        self._seen: dict[str, list[str]] = {}

    def feed(self, piece: str) -> list[str]:
        found = self._seen.get(piece)
        if found is None:
            found = self._seen[piece] = [decoded(self._change, piece)]
        return found

    def finish(self, *, cut: bool) -> list[str]:  # noqa: ARG002
        return []


def _states(decoder: Decoder | None) -> Sequence[dict[str, object]]:
    if decoder is None:
        return []
    return _flatten(json.loads(decoder.__getstate__()))


def _flatten(state: dict[str, object]) -> list[dict[str, object]]:
    inner = state.get("decoders")
    if state.get("type") != "Sequence" or not isinstance(inner, list):
        return [state]
    return [leaf for one in inner for leaf in _flatten(one)]


def _byte_alphabet() -> dict[str, int]:
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(b): b for b in printable} | {chr(256 + n): b for n, b in enumerate(others)}


_BYTES = _byte_alphabet()
_CHARS = {byte: char for char, byte in _BYTES.items()}
