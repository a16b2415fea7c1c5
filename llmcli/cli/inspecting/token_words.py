"""Tokens as they are shown: whatever they hold, they stay one harmless piece of a line."""

from __future__ import annotations

from collections.abc import Sequence

from llmcli.cli.columns import cells_wide
from llmcli.cli.inspecting.subject import Subject
from llmcli.errors import UsageError
from llmcli.insight.bounds import check_index

_SPACE = "\u2423"


def quoted(text: str) -> str:
    """In quotes, with what cannot be printed escaped."""
    return repr(text)


def compact(text: str, width: int) -> str:
    """Without quotes, spaces visible, cut to `width` columns."""
    shown = "".join(
        _SPACE if c == " " else c if c.isprintable() else c.encode("unicode_escape").decode()
        for c in text
    )
    if cells_wide(shown) <= width:
        return shown
    while cells_wide(shown) > width - 1:
        shown = shown[:-1]
    return shown + "\u2026"


def position_of(subject: Subject, position: int | None) -> int:
    """The position asked for, or the prompt's last. Raises UsageError out of its range."""
    count = len(subject.prompt.ids)
    check_index("--position", position, count, "tokens in the prompt")
    return count - 1 if position is None else position


def tokens_of(
    subject: Subject, texts: Sequence[str] | None, view: str, *, most: int, least: int = 0
) -> list[int]:
    """The ids of tokens given as text or as #ID. Raises UsageError for what is not one token."""
    given = texts or ()
    if not least <= len(given) <= most:
        counts = str(most) if least == most else f"at most {most}"
        raise UsageError(
            f"view {view} takes {counts} --token, and {len(given)} were given",
            hint=f"llmcli inspect-layers --view {view}{' --token TEXT' * (least or most)}",
        )
    return [_token_of(subject, text) for text in given]


def _token_of(subject: Subject, text: str) -> int:
    rows, tokenizer = subject.facts.spec.vocab_size, subject.reader.tokenizer
    if text.startswith("#") and text[1:].isascii() and text[1:].isdecimal():
        check_index("--token", int(text[1:]), rows, "tokens")
        return int(text[1:])
    if (exact := tokenizer.token_id(text)) is not None:
        return exact
    ids = tokenizer.encode_raw(text, bos=False)
    if len(ids) == 1:
        return ids[0]
    # Some tokenizers put a space in front of any text, and two before one that begins with it.
    bare = tokenizer.encode_raw(text.removeprefix(" "), bos=False)
    if len(bare) == 1 and tokenizer.token_text(bare[0]) == text:
        return bare[0]
    raise UsageError(
        f"--token {quoted(text)} is {_listed([tokenizer.token_text(id_) for id_ in ids])}, "
        "not one token",
        hint="give one of them, or #ID; --view tokens shows ids",
    )


def _listed(texts: Sequence[str]) -> str:
    shown = " ".join(quoted(text) for text in texts[:8])
    return f"{len(texts)} tokens: {shown}{' ...' * (len(texts) > 8)}" if texts else "no token"
