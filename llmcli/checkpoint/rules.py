"""Rules: how stored tensors become the decoder's parameters, as data on whole module paths.

In a path `{i}` stands for each layer's index, `{e}` for each expert's and `{p}` for the family's
prefix. A rule on a module covers its `.weight` and its `.bias`; a path that is itself a
parameter (`sinks`, `A_log`) is covered as it stands. A rule whose targets the spec does not have
does nothing. Must not know torch, files or families.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rename:
    """One stored module is one of ours; `transpose` where it is stored as [C_in, C_out]."""

    src: str
    dst: str
    transpose: bool = False


@dataclass(frozen=True, slots=True)
class Split:
    """One stored module holds several of ours side by side.

    Its rows, viewed as [groups, sum(sizes)], are cut along the second axis; the part for
    `to[n]` has `groups * sizes[n]` rows. GPT-2's fused qkv is one group of (C, C, C).
    """

    src: str
    to: tuple[str, ...]
    groups: int
    sizes: tuple[int, ...]
    transpose: bool = False


@dataclass(frozen=True, slots=True)
class Unstack:
    """One stored tensor holds all experts along its first axis; each is then cut like a Split.

    `src` and `suffix` name the tensor and which of our parameters it makes, as stored names need
    not end in `.weight` or `.bias`. Each `to` holds `{e}`.
    """

    src: str
    suffix: str
    to: tuple[str, ...]
    groups: int
    sizes: tuple[int, ...]
    transpose: bool = False


@dataclass(frozen=True, slots=True)
class Stack:
    """`count` stored vectors, `{h}` in `src`, are the rows of one of our parameters."""

    src: str
    dst: str
    count: int


@dataclass(frozen=True, slots=True)
class Tie:
    """`src`, where a file holds it, must repeat the parameter `dst` (a tied head)."""

    src: str
    dst: str


@dataclass(frozen=True, slots=True)
class Ignore:
    """A stored tensor (whole name) that computes nothing, such as a buffer of old versions.

    A name that ends in `.*` covers all that lies below a module. With a `witness`, only where a
    file holds that tensor too.
    """

    name: str
    witness: str | None = None


Rule = Rename | Split | Unstack | Stack | Tie | Ignore
