"""Whether two tokenizers are one and the same: every id, and every merge."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import zip_longest

from llmcli.text.tokenizer import Tokenizer


def first_difference(one: Tokenizer, other: Tokenizer) -> str | None:
    """The lowest id, else the first merge, that differs, as `one` and then `other` has it."""
    ours, theirs = one.texts_by_id(), other.texts_by_id()
    for id_ in sorted(ours.keys() | theirs.keys()):
        if ours.get(id_) != theirs.get(id_):
            return f"id {id_} is {_piece(ours, id_)} in one and {_piece(theirs, id_)} in the other"
    pairs = zip_longest(one.merges, other.merges)
    for place, (our, their) in enumerate(pairs):
        if our != their:
            return f"merge {place} is {_merge(our)} in one and {_merge(their)} in the other"
    return None


def _piece(texts: Mapping[int, str], id_: int) -> str:
    return repr(texts[id_]) if id_ in texts else "nothing"


def _merge(merge: tuple[str, ...] | None) -> str:
    return "nothing" if merge is None else repr(" ".join(merge))
