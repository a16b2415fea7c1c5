"""llmcli's own quantised form (docs/quantizing.md): read from config.json, proved from headers.

A parameter is stored under the decoder's own name, whole, or as `NAME.codes`, `NAME.scale` and
for four bits `NAME.minimum`. Must not know torch or what the numbers mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from llmcli.checkpoint.escape import printable
from llmcli.checkpoint.expand import Piece
from llmcli.checkpoint.header import StoredTensor
from llmcli.checkpoint.plan import LOADABLE, Assignment, LoadPlan, refuse_misfits
from llmcli.errors import CheckpointError, UnsupportedError, UsageError
from llmcli.spec.parameters import Shape

KEY: Final = "llmcli_quantization"
VERSION: Final = 1
PARTS: Final = ("codes", "scale", "minimum")
LARGEST_GROUP: Final = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedForm:
    """What config.json says: `bits` of most matrices, and how many columns share a scale.

    `separate_head`: the file holds a head of its own although the rest of config.json ties it.
    """

    bits: int
    group_size: int
    parameters: int
    separate_head: bool = False

    def as_config(self) -> dict[str, Any]:
        """The block of config.json."""
        return {
            "version": VERSION,
            "bits": self.bits,
            "group_size": self.group_size,
            "parameters": self.parameters,
            "separate_head": self.separate_head,
        }


def packed_form(config: Mapping[str, Any]) -> PackedForm | None:
    """None for any other checkpoint.

    Raises UnsupportedError for a version that is not known, CheckpointError for a damaged block.
    """
    block = config.get(KEY)
    if block is None:
        return None
    if not isinstance(block, dict):
        raise _damaged(f"is {printable(repr(block), 40)}, not an object")
    version = block.get("version")
    if type(version) is not int or version != VERSION:
        raise UnsupportedError(
            f"config.json: {KEY} is of version {printable(repr(version), 40)}; "
            f"this llmcli reads {VERSION}",
            hint="update llmcli, or quantise the original again",
        )
    form = PackedForm(
        bits=_whole(block, "bits"),
        group_size=_whole(block, "group_size"),
        parameters=_whole(block, "parameters"),
        separate_head=block.get("separate_head") is True,
    )
    if form.bits not in (4, 8):
        raise _damaged(f"says bits {form.bits}; they can be 4 or 8")
    if form.group_size % 2 or form.group_size > LARGEST_GROUP:
        raise _damaged(
            f"says group_size {form.group_size}; it must be even and at most {LARGEST_GROUP}"
        )
    if extra := sorted(block.keys() - form.as_config().keys()):
        raise _damaged(f"has a key of no meaning: {printable(str(extra[0]), 40)}")
    return form


def refuse_quantizing(config: Mapping[str, Any], asked: str | None, name: str) -> None:
    """Raise UsageError where `--quantize` is asked for and the checkpoint is quantised already."""
    form = packed_form(config) if asked is not None else None
    if form is not None:
        raise UsageError(
            f"--quantize {asked}: {printable(name)} is quantised already, in {form.bits} bits",
            hint="leave --quantize out",
        )


def make_packed_plan(
    expected: Mapping[str, Shape],
    stored: Mapping[str, StoredTensor],
    form: PackedForm,
    *,
    packable: frozenset[str],
) -> LoadPlan:
    """Match stored tensors with parameters; only those in `packable` may be packed.

    Raises CheckpointError listing every mismatch in one message.
    """
    made, missing, misshapen = [], [], []
    used: set[str] = set()
    for target, shape in expected.items():
        names = _names(target, stored, packed=target in packable)
        used.update(names)
        missing += [name for name in names if name not in stored]
        sources = tuple(stored[name] for name in names if name in stored)
        if len(sources) < len(names):
            continue
        wanted = [(LOADABLE, shape)]
        if len(names) > 1:
            wanted = _wanted(shape, sources, form.group_size)
        misshapen += [
            f"{source.name} is {source.dtype} {list(source.shape)}, "
            f"config says {_kinds(kinds)} {list(needed)}"
            for source, (kinds, needed) in zip(sources, wanted, strict=True)
            if source.dtype not in kinds or source.shape != needed
        ]
        piece = Piece(target, names, shape)
        made.append(Assignment(piece, shape, sources, packed=len(names) > 1))
    unexpected = [
        f"{name} {list(tensor.shape)}" for name, tensor in stored.items() if name not in used
    ]
    refuse_misfits(missing=missing, unexpected=unexpected, misshapen=misshapen)
    order = sorted(made, key=lambda item: (str(item.source.file), item.source.start))
    return LoadPlan(tuple(order), ())


def _names(target: str, stored: Mapping[str, StoredTensor], *, packed: bool) -> tuple[str, ...]:
    """What should be in the file for this parameter, by what is there of it."""
    codes = stored.get(f"{target}.codes")
    parts = any(f"{target}.{part}" in stored for part in PARTS)
    if not packed or (target in stored and not parts):
        return (target,)
    if codes is not None and codes.dtype == "I8":
        return tuple(f"{target}.{part}" for part in PARTS[:2])
    if codes is None and not parts:
        return (f"{target}.codes",)
    return tuple(f"{target}.{part}" for part in PARTS)


def _wanted(
    shape: Shape, sources: tuple[StoredTensor, ...], group: int
) -> list[tuple[frozenset[str], Shape]]:
    """The dtypes and the shape that each part must have."""
    rows, columns = shape
    if len(sources) == 2:
        # Eight bits may have a scale for each of any number of equal runs of a row.
        found = sources[1].shape
        runs = found[1] if len(found) == 2 and found[1] and columns % found[1] == 0 else 1
        return [(frozenset({"I8"}), shape), (frozenset({"F32"}), (rows, runs))]
    groups, halves = -(-columns // group), frozenset({"F16"})
    codes = (rows, groups, group // 2)
    return [(frozenset({"U8"}), codes), (halves, (rows, groups)), (halves, (rows, groups))]


def _kinds(kinds: frozenset[str]) -> str:
    return "a float" if len(kinds) > 1 else next(iter(kinds))


def _whole(block: Mapping[str, Any], name: str) -> int:
    value = block.get(name)
    if type(value) is not int or not 0 < value < 2**63:
        raise _damaged(f"says {name} {printable(repr(value), 40)}; it must be a whole number")
    return value


def _damaged(what: str) -> CheckpointError:
    return CheckpointError(
        f"config.json: {KEY} {what}", hint="quantise the original again with `llmcli quantize`"
    )
