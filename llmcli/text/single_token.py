"""The one token that writes exactly a given text. Must not know what it is wanted for."""

from __future__ import annotations

from collections.abc import Iterator

from llmcli.errors import UsageError
from llmcli.text.token_decoder import byte_level_piece
from llmcli.text.tokenizer import Tokenizer

_SHOWN = 12


def single_token(tokenizer: Tokenizer, text: str) -> int:
    """The id that writes `text` in the middle of a text; an added token's name is that token.

    Raises UsageError, showing the tokens that it takes, where no single one does.
    """
    id_ = tokenizer.token_id(text)
    if id_ is not None and id_ in tokenizer.added_tokens:
        return id_
    found = _writing(tokenizer, text)
    if found is not None:
        return found
    ids = tokenizer.encode_raw(text, bos=False)
    shown = " + ".join(f"{tokenizer.token_text(one)!r} ({one})" for one in ids[:_SHOWN])
    more = f" + {len(ids) - _SHOWN} more" if len(ids) > _SHOWN else ""
    spaced = None if text[:1].isspace() else _writing(tokenizer, " " + text)
    hint = "name one token; --json shows the ids of a text"
    if spaced is not None:
        hint = f"{' ' + text!r}, with the space in front, is one token ({spaced})"
    takes = f"; it takes {shown}{more}" if len(ids) > 1 else ""
    raise UsageError(f"no single token writes {text!r}{takes}", hint=hint)


def _writing(tokenizer: Tokenizer, text: str) -> int | None:
    known = (id_ for id_ in _candidates(tokenizer, text) if tokenizer.token_text(id_) == text)
    return next(known, None)


def _candidates(tokenizer: Tokenizer, text: str) -> Iterator[int]:
    """Ids by every usual way to spell a text, likely ones first."""
    ids = tokenizer.encode_raw(text, bos=False)
    if len(ids) == 1:
        yield ids[0]
    spellings = [byte_level_piece(text), text.replace(" ", "\u2581"), text]
    data = text.encode("utf-8")
    if len(data) == 1:
        spellings.append(f"<0x{data[0]:02X}>")
    for spelling in spellings:
        id_ = tokenizer.token_id(spelling)
        if id_ is not None:
            yield id_
