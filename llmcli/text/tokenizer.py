"""Strings to ids and back, as the checkpoint's own tokenizer does it.

Two encodings: raw prompts (`encode_raw`) and rendered chats (`encode_rendered`). Decoding never
applies `clean_up_tokenization_spaces`: that switch deletes spaces the model wrote.
Must not know chat templates, models or terminals.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path

from tokenizers import AddedToken, Encoding
from tokenizers.decoders import Decoder

from llmcli.errors import TokenizerError, UsageError
from llmcli.text.panics import decoded
from llmcli.text.plain_spans import LiteralEncoder, spell_out
from llmcli.text.rendered import Rendered
from llmcli.text.token_decoder import (
    BYTE_PIECE,
    REPLACEMENT,
    PieceDecoder,
    decoder_kinds,
    piece_bytes,
)
from llmcli.text.tokenizer_files import TokenizerFiles, load_files

ID_LIMIT = 1 << 32  # the library raises outside of this range


class Tokenizer:
    """The tokenizer of one checkpoint. Make one with `Tokenizer.load(folder)`."""

    def __init__(self, files: TokenizerFiles) -> None:
        self._backend = files.backend
        self._names = files.names
        self._asks_bos = files.asks_bos
        self.source = files.source
        self.added_tokens: Mapping[int, AddedToken] = self._backend.get_added_tokens_decoder()
        self.special_ids = frozenset(i for i, t in self.added_tokens.items() if t.special)

    @classmethod
    def load(cls, folder: Path) -> Tokenizer:
        return cls(load_files(folder))

    @cached_property
    def vocab_size(self) -> int:
        """The highest id that has an entry, plus one."""
        size = self._backend.get_vocab_size()
        # Without holes the count is the answer, much sooner than by listing the vocabulary
        if all(self._backend.id_to_token(token) is not None for token in range(size)):
            return size
        return max(self._backend.get_vocab().values(), default=-1) + 1

    @property
    def bos_token(self) -> str | None:
        return self._names.get("bos_token")

    @property
    def eos_token(self) -> str | None:
        return self._names.get("eos_token")

    @property
    def unk_token(self) -> str | None:
        return self._names.get("unk_token")

    @property
    def bos_id(self) -> int | None:
        return self._named_id(self.bos_token)

    @property
    def eos_id(self) -> int | None:
        return self._named_id(self.eos_token)

    @property
    def template_tokens(self) -> dict[str, str]:
        """The named tokens that chat templates may use, such as {"bos_token": "<s>"}."""
        return dict(self._names)

    @property
    def merges(self) -> list[tuple[str, ...]]:
        """The merges of a byte-pair vocabulary, in order; none of any other kind."""
        model = json.loads(self._backend.to_str())["model"]
        # Older files write a pair as one string with a space between.
        return [
            tuple(merge.split(" ") if isinstance(merge, str) else merge)
            for merge in model.get("merges", [])
        ]

    def texts_by_id(self) -> dict[int, str]:
        """The vocabulary's own spelling of every id, added tokens included."""
        return {id_: text for text, id_ in self._backend.get_vocab().items()}

    def encode_raw(
        self, text: str, *, bos: bool | None = None, parse_special: bool = False
    ) -> list[int]:
        """The ids of a raw prompt: no chat template, and never an end-of-text id added.

        `bos` None adds what tokenizer.json's post-processor puts in front, True forces a
        beginning-of-text id, False adds none. It is never doubled: where one is to be added and
        the text itself begins with it (a pasted prompt), that text stands for it. Any other
        special token typed in the text is plain text unless `parse_special`.
        """
        prefix = self._wanted_prefix(bos)
        pasted = self._pasted_prefix(text, prefix)
        if parse_special:
            ids = self._matched(text).ids
            return ids if pasted or not prefix else [*prefix, *ids]
        return [*prefix, *self._plain(text[len(pasted) :])]

    def encode_rendered(self, rendered: Rendered) -> list[int]:
        """The ids of a rendered chat: the template's control tokens count, no BOS is added.

        Without literal spans this is one ordinary encoding of the whole text, as in transformers.
        """
        if not rendered.literals:
            return self._matched(rendered.text).ids
        self._check_text(rendered.text)
        return self._literals.encode(rendered)

    def find_added(self, text: str) -> list[tuple[int, int, int]]:
        """The (start, end, id) of every added token, special or not, that `text` really spells."""
        encoding = self._matched(text)
        found = []
        for token, (start, end) in zip(encoding.ids, encoding.offsets, strict=True):
            added = self.added_tokens.get(token)
            if added is not None and text[start:end].strip() == added.content.strip():
                found.append((start, end, token))
        return found

    def decode(self, ids: Iterable[int], *, skip_special: bool = True) -> str:
        """The text of the ids; an id with no entry gives no text."""
        hidden = self.special_ids if skip_special else frozenset()
        known = [i for i in ids if 0 <= i < ID_LIMIT and i not in hidden]
        # Some decoders of the library panic where no id has an entry
        if all(self.piece(i) is None for i in known):
            return ""
        return decoded(partial(self._backend.decode, skip_special_tokens=False), known)

    @property
    def decoder(self) -> Decoder | None:
        """What turns pieces into text."""
        decoder: Decoder | None = self._backend.decoder
        return decoder

    def new_decoder(self) -> PieceDecoder:
        """A streaming decoder, fed with `piece(id)`, whose text equals `decode` of the whole."""
        return PieceDecoder(self.decoder)

    def piece(self, token: int) -> str | None:
        """The vocabulary's own spelling of an id, or None if it has no entry."""
        return self._backend.id_to_token(token) if 0 <= token < ID_LIMIT else None

    def token_text(self, token: int) -> str:
        """A readable text for one id, for listings. An id with no entry reads "<id 123>"."""
        piece = self.piece(token)
        if piece is None:
            return f"<id {token}>"
        if token in self.added_tokens:
            return piece
        decoder = self.new_decoder()
        # In the middle of a text, where no decoder takes a leading space away
        text = (decoder.feed("a") + decoder.feed(piece) + decoder.finish())[1:]
        if REPLACEMENT not in text or REPLACEMENT in piece:
            return text
        if BYTE_PIECE.fullmatch(piece):
            return piece
        if "ByteLevel" in decoder_kinds(self._backend.decoder):
            return "".join(f"<0x{byte:02X}>" for byte in piece_bytes(piece))
        return text

    def token_bytes(self, token: int) -> bytes:
        """The bytes of one id in the middle of a text; none of an id with no entry."""
        piece = self.piece(token)
        if piece is None:
            return b""
        if token not in self.added_tokens:
            if BYTE_PIECE.fullmatch(piece):
                return bytes([int(piece[3:-1], 16)])
            if "ByteLevel" in decoder_kinds(self._backend.decoder):
                return piece_bytes(piece)
        return self.token_text(token).encode("utf-8")

    def token_id(self, text: str) -> int | None:
        """The id whose vocabulary spelling is exactly `text`."""
        return self._backend.token_to_id(text)

    @cached_property
    def _prefix_ids(self) -> list[int]:
        """What the post-processor puts in front of a prompt; usually one BOS, or nothing."""
        bare = self._backend.encode("a", add_special_tokens=False).ids
        full = self._backend.encode("a", add_special_tokens=True).ids
        for at in range(len(full) - len(bare) + 1):
            if bare and full[at : at + len(bare)] == bare:
                return full[:at]
        return []

    @cached_property
    def _literals(self) -> LiteralEncoder:
        return LiteralEncoder(self._backend, self.added_tokens)

    def _wanted_prefix(self, bos: bool | None) -> Sequence[int]:
        if bos is False or (bos is None and not self._asks_bos and not self._prefix_ids):
            return []
        if self._prefix_ids:
            return self._prefix_ids
        if self.bos_id is not None:
            return [self.bos_id]
        if bos is None:
            return []
        raise UsageError(
            f"a BOS was asked for, but {self.source} names no beginning-of-text token",
            hint="leave the BOS out",
        )

    def _pasted_prefix(self, text: str, prefix: Sequence[int]) -> str:
        """The text of the added prefix if `text` begins with it, else nothing."""
        spelled = "".join([self.piece(token) or "" for token in prefix])
        return spelled if spelled and text.startswith(spelled) else ""

    def _matched(self, text: str) -> Encoding:
        """One encoding in which added tokens, special ones too, are recognised."""
        self._check_text(text)
        self._backend.encode_special_tokens = False
        return self._backend.encode(text, add_special_tokens=False)

    def _plain(self, text: str) -> list[int]:
        """Ids in which no special token is recognised; other added tokens still are."""
        self._check_text(text)
        specials = sorted(i for i in self.special_ids if self.added_tokens[i].content in text)
        if not specials:
            return self._matched(text).ids
        self._backend.encode_special_tokens = True
        try:
            encoding = self._backend.encode(text, add_special_tokens=False)
        finally:
            self._backend.encode_special_tokens = False
        return spell_out(self._backend, encoding, frozenset(specials))

    def _named_id(self, text: str | None) -> int | None:
        return None if text is None else self.token_id(text)

    def _check_text(self, text: str) -> None:
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise TokenizerError(
                f"the text holds U+{ord(text[error.start]):04X} at character {error.start}, "
                "half of a surrogate pair, which no tokenizer can encode",
                hint="the input was not valid UTF-8; convert it first",
            ) from error
