"""A prompt's keys and values in a file, to be gone on from in another process.

They are used only with the very checkpoint, dtype, kind of cache and rotary tables that they were
made with, and only as far as the ids agree.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from llmcli.cache import CacheKind, KVCache, make_cache
from llmcli.cache.saved import from_tensors, to_tensors
from llmcli.checkpoint.escape import printable
from llmcli.engine.session import Session
from llmcli.errors import CheckpointError, LlmcliError, UsageError
from llmcli.generation.stepper import Stepper
from llmcli.model import Decoder
from llmcli.model.linear import Weighted
from llmcli.whole_file import replacing

FORMAT = "1"
_KEY = "llmcli_prompt_cache"


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What keys and values depend on besides the ids; `checkpoint` names its files' content."""

    checkpoint: str
    dtype: str
    kind: CacheKind

    def difference(self, other: Fingerprint) -> str | None:
        """What differs, in words, or None."""
        if self.checkpoint != other.checkpoint:
            return "it was made with another checkpoint"
        if self.dtype != other.dtype:
            return f"it was made in {self.dtype}, and this run computes in {other.dtype}"
        if self.kind != other.kind:
            return f"it was made with --cache {self.kind}, and this run uses {other.kind}"
        return None


def check_kind(session: Session) -> None:
    """Raise UsageError where this kind of cache cannot be saved or loaded."""
    cache = session.cache
    if cache is None or not all(store.can_save for store in cache.stores):
        raise UsageError(
            f"a cache of kind {session.kind} cannot be saved or loaded",
            hint="use --cache growing, ring or static",
        )


def save(path: Path, session: Session, checkpoint: str, decoder: Decoder) -> int:
    """Write what the session's cache holds, whole or not at all; how many tokens that is.

    Raises LlmcliError where it cannot be written, or where a long text has lost its middle.
    """
    cache, ids = session.cache, session.held
    assert cache is not None
    if cache.dropped:
        raise LlmcliError(
            f"the cache was not saved: {cache.dropped} tokens in its middle are gone",
            hint="save it without --overflow shift",
        )
    if not ids:
        raise LlmcliError("the cache was not saved: it holds no token", hint="give a longer prompt")
    cache.rewind(cache.length - len(ids))
    made = Fingerprint(checkpoint, _dtype(decoder), session.kind)
    facts = {
        "format": FORMAT,
        "ids": ids,
        "regime": cache.regime,
        "checkpoint": made.checkpoint,
        "dtype": made.dtype,
        "kind": made.kind,
    }
    try:
        with replacing(path) as beside:
            save_file(to_tensors(cache), beside, metadata={_KEY: json.dumps(facts)})
    except (OSError, SafetensorError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise LlmcliError(
            f"--save-cache {printable(str(path))} cannot be written: {reason}",
            hint="check the folder, its permissions and free space",
        ) from error
    return len(ids)


def load(path: Path, session: Session, checkpoint: str, decoder: Decoder) -> str | None:
    """Fill the session's cache from the file; or why it is of no use for this run.

    Raises CheckpointError for a file that is no prompt cache or is damaged.
    """
    shown = printable(str(path))
    try:
        with safe_open(path, framework="pt") as file:
            facts = _facts((file.metadata() or {}).get(_KEY))
            made = Fingerprint(facts["checkpoint"], facts["dtype"], facts["kind"])
            now = Fingerprint(checkpoint, _dtype(decoder), session.kind)
            if (differs := made.difference(now)) is not None:
                return differs
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        ids = facts["ids"]
        cache = make_cache(session.kind, decoder.spec, planned=len(ids))
        assert cache is not None
        from_tensors(
            cache,
            tensors,
            length=len(ids),
            regime=facts["regime"],
            like=_example(decoder, session.kind),
            device=decoder.device,
        )
    except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise CheckpointError(
            f"--load-cache {shown} is not a whole prompt cache: {printable(str(reason), 200)}",
            hint="make it again with --save-cache",
        ) from error
    if any(not 0 <= one < decoder.spec.vocab_size for one in ids):
        raise CheckpointError(
            f"--load-cache {shown} holds ids outside the vocabulary",
            hint="make it again with --save-cache",
        )
    session.adopt(cache, ids)
    return None


def _facts(text: str | None) -> dict[str, Any]:
    if text is None:
        raise ValueError("it holds no prompt cache of llmcli")
    facts: dict[str, Any] = json.loads(text)
    if facts["format"] != FORMAT:
        raise ValueError(f"it is of format {facts['format']!r}, not {FORMAT!r}")
    numbers = [*facts["ids"], *facts["regime"]]
    names = [facts[name] for name in ("checkpoint", "dtype", "kind")]
    if not all(type(one) is int for one in numbers) or not all(type(one) is str for one in names):
        raise ValueError("its facts are damaged")
    if not facts["ids"]:
        raise ValueError("it holds no token")
    return {**facts, "ids": tuple(facts["ids"]), "regime": tuple(facts["regime"])}


def _example(decoder: Decoder, kind: CacheKind) -> KVCache:
    """A cache of this kind after one token: names, shapes and dtypes as they have to be."""
    cache = make_cache(kind, decoder.spec)
    assert cache is not None
    Stepper(decoder, cache).feed(torch.zeros(1, 1, dtype=torch.long, device=decoder.device))
    return cache


def _dtype(decoder: Decoder) -> str:
    """What it computes in, with what its weights were rounded to."""
    held = {
        type(module.packed).__name__.lower()
        for module in decoder.modules()
        if isinstance(module, Weighted) and module.packed is not None
    }
    name = str(decoder.dtype).removeprefix("torch.")
    return f"{name} with {' and '.join(sorted(held))} weights" if held else name
