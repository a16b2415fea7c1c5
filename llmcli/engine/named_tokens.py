"""Tokens that a user names by id or by text, for `--logit-bias` and `--suppress`.

Must not know torch or tokenizers: a Vocabulary answers for both.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from llmcli.checkpoint.escape import printable
from llmcli.errors import UsageError

_ID = re.compile(r"[+-]?[0-9]+", re.ASCII)


class Vocabulary(Protocol):
    """What a model can say: `size` ids from 0 up."""

    @property
    def size(self) -> int: ...

    def find(self, text: str) -> int:
        """The id that writes exactly `text`. Raises UsageError where none does."""
        ...

    def name(self, id_: int) -> str:
        """A readable text for one id."""
        ...


@dataclass(frozen=True, slots=True)
class Named:
    """One token as it was given: by its id, or by its text."""

    given: str
    id: int | None = None
    text: str | None = None


def parse_suppress(given: Sequence[str]) -> tuple[Named, ...]:
    """Raises UsageError for what names no token."""
    return tuple(_parse("--suppress", one) for one in given)


def parse_biases(given: Sequence[str]) -> tuple[tuple[Named, float], ...]:
    """Of each TOKEN=NUMBER both halves; the last `=` parts them. Raises UsageError."""
    return tuple(_parse_bias(one) for one in given)


def resolve_ids(option: str, named: Iterable[Named], vocabulary: Vocabulary) -> tuple[int, ...]:
    """Raises UsageError for an id that the vocabulary lacks, and for one that is named twice."""
    found: dict[int, str] = {}
    for one in named:
        id_ = _resolve(option, one, vocabulary)
        if id_ in found:
            raise UsageError(
                f"{option} names id {id_} twice: {_quoted(found[id_])} and {_quoted(one.given)}",
                hint="leave one of them out",
            )
        found[id_] = one.given
    return tuple(found)


def check_tokens(
    biases: Sequence[tuple[int, float]], suppressed: Sequence[int], vocabulary: Vocabulary
) -> None:
    """Raise UsageError where an id is both shifted and forbidden, or nothing is left to say."""
    both = {id_ for id_, _ in biases} & set(suppressed)
    if both:
        id_ = min(both)
        raise UsageError(
            f"id {id_} {printable(repr(vocabulary.name(id_)))} has a logit-bias and is suppressed",
            hint="a suppressed token is never said; leave one of them out",
        )
    if len(set(suppressed)) >= vocabulary.size:
        raise UsageError(
            f"all {vocabulary.size} ids of the vocabulary are suppressed",
            hint="leave at least one that can be said",
        )


def told(ids: Iterable[int], vocabulary: Vocabulary) -> list[dict[str, Any]]:
    """Ids as reports show them."""
    return [{"id": id_, "token": vocabulary.name(id_)} for id_ in ids]


def told_biases(biases: Mapping[int, float], vocabulary: Vocabulary) -> list[dict[str, Any]]:
    """Ids with their biases, as reports show them."""
    return [{**one, "bias": biases[one["id"]]} for one in told(biases, vocabulary)]


def _parse(option: str, given: str) -> Named:
    if _ID.fullmatch(given):
        return Named(given, id=int(given[:20]))
    text: Any = given
    if given.startswith('"'):
        try:
            text = json.loads(given)
        except ValueError:
            text = None
        # JSON can spell halves of surrogate pairs, which no token writes.
        if not isinstance(text, str) or any("\ud800" <= char <= "\udfff" for char in text):
            raise UsageError(
                f"{option} {_quoted(given)} begins with a quotation mark and is no quoted text",
                hint=r'quote as JSON does: "\"" is a quotation mark, "\n" a line break',
            )
    if not text:
        raise UsageError(
            f"{option} {_quoted(given)} names no token",
            hint="give an id, or the text of one token",
        )
    return Named(given, text=text)


def _parse_bias(given: str) -> tuple[Named, float]:
    name, parted, number = given.rpartition("=")
    try:
        bias = float(number)
    except ValueError:
        bias = math.nan
    if not parted or not math.isfinite(bias):
        raise UsageError(
            f"--logit-bias is {_quoted(given)}; it must be TOKEN=NUMBER with a finite number",
            hint="such as --logit-bias ' yes=+1.5' or --logit-bias 42=-3; "
            "--suppress forbids a token altogether",
        )
    return _parse("--logit-bias", name), bias


def _resolve(option: str, named: Named, vocabulary: Vocabulary) -> int:
    if named.text is not None:
        return vocabulary.find(named.text)
    assert named.id is not None
    if not 0 <= named.id < vocabulary.size:
        raise UsageError(
            f"{option} names id {printable(named.given, 30)}; "
            f"this model's ids lie between 0 and {vocabulary.size - 1}",
            hint=f"""for the text {named.given[:20]} write '"{named.given[:20]}"'""",
        )
    return named.id


def _quoted(given: str) -> str:
    return printable(repr(given), 60)
