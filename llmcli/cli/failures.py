"""Any exception as an error that a user can read. Must not know exit codes, nor print."""

from __future__ import annotations

from typing import NamedTuple

from llmcli.errors import LlmcliError


class Told(NamedTuple):
    """`is_bug`: it is our fault, and the traceback is wanted."""

    error: LlmcliError
    is_bug: bool


def explained(error: Exception) -> Told:
    """The error itself if it is one for users, else one that tells of it, with it as the cause."""
    if isinstance(error, LlmcliError):
        return Told(error, is_bug=False)
    short = _out_of_memory(error)
    if short is None and isinstance(error, OSError):
        short = _from_system(error)
    told = short or _bug(error)
    told.__cause__ = error
    return Told(told, is_bug=short is None)


def _from_system(error: OSError) -> LlmcliError:
    where = f": {error.filename}" if error.filename is not None else ""
    return LlmcliError(
        f"{error.strerror or type(error).__name__}{where}",
        hint="a file or a connection failed; --debug shows where",
    )


def _out_of_memory(error: Exception) -> LlmcliError | None:
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    told = "out of memory" in text or "can't allocate" in text
    if not isinstance(error, MemoryError) and not (isinstance(error, RuntimeError) and told):
        return None
    return LlmcliError(
        f"not enough memory: {text}",
        hint="try --dtype bfloat16, a shorter prompt, a smaller --max-new-tokens or model",
    )


def _bug(error: Exception) -> LlmcliError:
    return LlmcliError(
        f"internal error: {type(error).__name__}: {error}",
        hint="this is a fault of llmcli, not yours; please report it with the lines above",
    )
