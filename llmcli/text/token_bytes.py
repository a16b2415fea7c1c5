"""The bytes that each id adds in the middle of a text, as the tokenizer's own decoder has it.

Must not know grammars.
"""

from __future__ import annotations

from collections.abc import Callable

from tokenizers.decoders import Decoder

from llmcli.errors import TokenizerError
from llmcli.text.token_decoder import (
    BYTE_PIECE,
    ByteFallback,
    ByteLevel,
    EachPiece,
    PerPiece,
    StripStart,
    build_stages,
    decoder_kinds,
    piece_bytes,
)


def bytes_of_pieces(decoder: Decoder | None) -> Callable[[str], bytes]:
    """A function from a vocabulary's piece to the bytes that it adds to a text.

    Raises TokenizerError where these depend on the pieces around it.
    """
    changes: list[Callable[[str], str]] = []
    spell: Callable[[str], bytes] = _utf8
    for stage in build_stages(decoder):
        match stage:
            case EachPiece() | PerPiece():
                # Past the first piece, which some decoders treat in a way of its own
                stage.feed("a")
                changes.append(_joined(stage.feed))
            case ByteLevel():
                spell = piece_bytes
            case ByteFallback():
                spell = _fallback
            case StripStart():
                pass  # it acts at the start of a text alone
            case _:
                raise TokenizerError(
                    f"this tokenizer's decoder ({', '.join(sorted(decoder_kinds(decoder)))}) "
                    "does not give each token bytes of its own",
                    hint="constrained decoding needs that; other models have it",
                )

    def find(piece: str) -> bytes:
        for change in changes:
            piece = change(piece)
        return spell(piece)

    return find


def _joined(feed: Callable[[str], list[str]]) -> Callable[[str], str]:
    return lambda piece: "".join(feed(piece))


def _utf8(piece: str) -> bytes:
    return piece.encode("utf-8", "replace")


def _fallback(piece: str) -> bytes:
    match = BYTE_PIECE.fullmatch(piece)
    return bytes([int(match[1], 16)]) if match else _utf8(piece)
