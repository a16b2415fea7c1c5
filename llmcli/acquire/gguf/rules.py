"""What a row of the architecture table is made of. Must not know any architecture."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from llmcli.acquire.gguf.reader import GgufFile

# How the converter that wrote the file had changed a tensor's values:
# query, key    the rotary rows of each head interleaved
# transposed    rows and columns exchanged
# one_added     1 added to every value
Form = Literal["same", "query", "key", "transposed", "one_added"]


@dataclass(frozen=True, slots=True)
class TensorRule:
    """`source` in the GGUF file is `target` in the checkpoint; `{i}` is a layer's number.

    `shape` names sizes in the config builder's table, in the file's order; `form` is undone.
    """

    source: str
    target: str
    shape: tuple[str, ...]
    form: Form = "same"
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Shaped:
    """A built config.json, the sizes that tensor shapes refer to, and the keys it read."""

    config: dict[str, Any]
    sizes: Mapping[str, int]
    read_keys: frozenset[str]


@dataclass(frozen=True, slots=True)
class Sentences:
    """What a SentencePiece vocabulary leaves unsaid and the architecture settles.

    `merge_order`: joined tokens are preferred by their scores, or by their place in the list.
    `spaces`: tokens of several spaces are stored as spaces, and are pieces like any other.
    `eats_space`: after a special token white space is dropped, but for these tokens.
    """

    merge_order: Literal["scores", "places"] = "scores"
    spaces: bool = False
    eats_space: bool = False
    eats_no_space: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Architecture:
    """All that is known of one GGUF architecture."""

    name: str
    config: Callable[[GgufFile], Shaped]
    rules: tuple[TensorRule, ...]
    # Tensors that the config builder reads, or that hold nothing a checkpoint keeps.
    consumed: frozenset[str] = frozenset()
    sentences: Sentences = Sentences()


LAYER = "model.layers.{i}."


def matrix(
    source: str,
    target: str,
    shape: tuple[str, str],
    *,
    bias: Literal["none", "optional", "always"] = "none",
    form: Form = "same",
) -> tuple[TensorRule, ...]:
    """A layer's projection, `blk.{i}.<source>`, and its bias if it has one."""
    weight = TensorRule(f"blk.{{i}}.{source}.weight", f"{target}.weight", shape, form)
    if bias == "none":
        return (weight,)
    # A transposed matrix has its outputs first in the file, as every other has.
    bias_form: Form = "same" if form == "transposed" else form
    return (
        weight,
        TensorRule(
            f"blk.{{i}}.{source}.bias",
            f"{target}.bias",
            shape[:1],
            bias_form,
            optional=bias == "optional",
        ),
    )


def bias_flag(file: GgufFile, flag: str, names: tuple[str, ...]) -> bool:
    """Whether the projections `names` have biases: all of them or none."""
    there = [name for name in names if f"blk.0.{name}.bias" in file.tensors]
    if there and len(there) != len(names):
        raise file.fault(
            f"has a bias in {', '.join(there)} but not in every one of {', '.join(names)}",
            f"{flag} in config.json is all or none",
        )
    return bool(there)


def tied(file: GgufFile) -> bool:
    """Whether the head is the embedding itself: there is then no head in the file."""
    return "output.weight" not in file.tensors
