"""How a run can hold the weights, and how many bytes each parameter then takes.

Arithmetic on a spec and on stored headers. Must not know torch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, Final

from llmcli.insight.facts import Facts
from llmcli.insight.kernel_work import NOTHING, Packed
from llmcli.spec import (
    INT4_GROUP,
    DecoderSpec,
    PackingKind,
    matrices,
    packed_bytes,
    packing,
    parameter_shapes,
    wide_parameters,
)

# Bytes of one number of what is computed with.
DTYPES: Final[Mapping[str, int]] = {"float32": 4, "bfloat16": 2, "float16": 2}
AS_STORED: Final = "as stored"
_KINDS: Final[tuple[PackingKind, ...]] = ("int8", "int4")
_BITS: Final[Mapping[int, PackingKind]] = {8: "int8", 4: "int4"}
_STORED: Final = {"F32": "float32", "F64": "float64", "F16": "float16", "BF16": "bfloat16"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """Computing in `dtype` with matrices held as `matrices` says; `sizes` are bytes by parameter.

    `flags` ask for it; none are needed for what runs anyway. `packed` are the matrices that are.
    """

    dtype: str
    matrices: str
    flags: tuple[str, ...]
    sizes: Mapping[str, int]
    packed: Packed = NOTHING

    @property
    def weights(self) -> int:
        """Bytes of all parameters."""
        return sum(self.sizes.values())

    @property
    def element(self) -> int:
        """Bytes of a number that is computed with, keys and values included."""
        return DTYPES[self.dtype]


@dataclass(frozen=True, slots=True)
class Computing:
    """The dtype, and whether the matrices of a 16-bit file then stay in 16 bits."""

    dtype: str
    keeps_narrow: bool


def holdings(
    facts: Facts, plain: Computing, quantized: Computing, *, quantize: PackingKind | None = None
) -> tuple[Holding, ...]:
    """What runs as it is asked for, first, and then every other way.

    `plain` is how it computes with the matrices of the file, `quantized` with those that
    `--quantize` packs; `quantize` is what is asked for, which a quantised file has no room for.
    """
    spec, fixed = facts.spec, _packed_in_file(facts)
    assert not (fixed and quantize)
    found, form = [], facts.form
    stored = NOTHING
    if form is not None:
        stored = Packed(packing(spec, _BITS[form.bits]), form.group_size)
    if fixed or (plain.keeps_narrow and _narrow(facts)):
        sizes = _sizes(facts, plain) | fixed
        found.append(
            Holding(dtype=plain.dtype, matrices=AS_STORED, flags=(), sizes=sizes, packed=stored)
        )
    usual = AS_STORED if found else plain.dtype
    for name, element in DTYPES.items():
        if fixed and name == plain.dtype:
            continue
        flags = (f"--dtype {name}",) if name != usual else ()
        held, sizes = AS_STORED if fixed else name, plain_bytes(spec, element) | fixed
        found.append(Holding(dtype=name, matrices=held, flags=flags, sizes=sizes, packed=stored))
    for kind in () if fixed else _KINDS:
        flags = (f"--quantize {kind}",) if kind != quantize else ()
        sizes = _sizes(facts, quantized) | quantized_bytes(spec, kind)
        kinds = Packed(packing(spec, kind), INT4_GROUP)
        found.append(
            Holding(dtype=quantized.dtype, matrices=kind, flags=flags, sizes=sizes, packed=kinds)
        )
    wanted = quantize or usual
    return tuple(sorted(found, key=lambda one: bool(one.flags) or one.matrices != wanted))


def stored_dtype(facts: Facts) -> str:
    """That of most of the plain weights stored; of a config, what it says."""
    counted: Counter[str] = Counter()
    plan = facts.plan.assignments if facts.plan is not None else ()
    parts = {source.name for item in plan if item.packed for source in item.sources}
    for name, tensor in (facts.stored or {}).items():
        if name not in parts:
            counted[_STORED.get(tensor.dtype, "")] += tensor.nbytes
    del counted[""]
    if counted:
        return counted.most_common(1)[0][0]
    said: Any = facts.config.get("dtype") or facts.config.get("torch_dtype")
    return said if said in _STORED.values() else "float32"


def _sizes(facts: Facts, computing: Computing) -> dict[str, int]:
    sizes = plain_bytes(facts.spec, DTYPES[computing.dtype])
    return sizes | _narrow(facts) if computing.keeps_narrow else sizes


def plain_bytes(spec: DecoderSpec, element: int) -> dict[str, int]:
    """In a dtype of `element` bytes; what stays in float32 whatever the dtype counts 4."""
    wide = wide_parameters(spec)
    return {
        name: prod(shape) * (max(element, 4) if name in wide else element)
        for name, shape in parameter_shapes(spec).items()
    }


def quantized_bytes(spec: DecoderSpec, kind: PackingKind, **group: int) -> dict[str, int]:
    """Of the matrices that are packed, scales and minima included."""
    shapes = parameter_shapes(spec)
    return {
        name: packed_bytes(shapes[name], held, **group)
        for name, held in packing(spec, kind).items()
    }


def read_per_token(spec: DecoderSpec, sizes: Mapping[str, int]) -> int:
    """Weights that one decode step reads: all but idle experts and other tokens' rows."""
    read = sum(sizes.values())
    if (facts := spec.experts) is not None:
        experts = sum(size for name, size in sizes.items() if ".mlp.experts." in name)
        read -= experts * (facts.count - facts.top_k) // facts.count
    if not spec.tie_embeddings:
        read -= sizes["embed_tokens.weight"] * (spec.vocab_size - 1) // spec.vocab_size
    return read


def _packed_in_file(facts: Facts) -> dict[str, int]:
    """Bytes of the matrices that the file holds packed, by its headers or else by its config."""
    if facts.form is None:
        return {}
    if facts.plan is None:
        return quantized_bytes(facts.spec, _BITS[facts.form.bits], group=facts.form.group_size)
    return {
        item.target: sum(source.nbytes for source in item.sources)
        for item in facts.plan.assignments
        if item.packed
    }


def _narrow(facts: Facts) -> dict[str, int]:
    """Bytes of the matrices that are stored in 16 bits, by the headers or else by the config."""
    able = matrices(facts.spec)
    if facts.plan is None:
        shapes = parameter_shapes(facts.spec)
        narrow = DTYPES.get(stored_dtype(facts)) == 2
        return {name: 2 * prod(shapes[name]) for name in able} if narrow else {}
    return {
        item.target: 2 * prod(item.shape)
        for item in facts.plan.assignments
        if item.target in able and not item.packed and item.source.dtype in ("F16", "BF16")
    }
