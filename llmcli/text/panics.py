"""The tokenizers library is Rust: some inputs make it panic, which no `except Exception` sees."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from llmcli.errors import TokenizerError

_T = TypeVar("_T")

# pyo3 raises it straight from BaseException and does not let it be imported.
_PANIC = "PanicException"


def decoded(decode: Callable[[_T], str], given: _T) -> str:
    """`decode(given)`. Raises TokenizerError where the library panics."""
    try:
        return decode(given)
    except BaseException as error:
        if type(error).__name__ != _PANIC:
            raise
        raise TokenizerError(
            f"the tokenizers library breaks down in decoding {_shown(given)}: {error}",
            hint="the decoder in tokenizer.json does not suit this token; fetch the file again",
        ) from error


def _shown(given: object) -> str:
    text = repr(given)
    return text if len(text) <= 60 else text[:60] + "..."
