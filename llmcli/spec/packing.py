"""Which of a decoder's parameters can be held in few bits, and how many bytes they then take.

Packed are the matrices that a step reads whole: projections, the MLP's, experts', embedding and
head; these are nearly all of the bytes. Everything else stays as it is: norms, biases, sinks,
convolutions and tables of positions are small; a router's and a gate's few rows decide where a
token goes, so that a rounding there changes everything behind it. Must not know tensors.
"""

from __future__ import annotations

from math import prod
from typing import Final, Literal

from llmcli.spec.decoder import DecoderSpec
from llmcli.spec.parameters import Shape, matrices, parameter_shapes

# int8 has a scale for every group of a row, int4 a scale and a minimum.
PackingKind = Literal["int8", "int4"]
INT4_GROUP: Final = 32

# Columns that may share a scale in int8. One scale for a whole row is far less exact: with
# SmolLM2 the mean KL divergence is 4.0e-3 nats a token then, and 0.78e-3 with groups of 32.
_INT8_GROUPS: Final = (32, 24, 16, 8)

# The last part of a module's name before `.weight`.
_LEFT_ALONE: Final = frozenset(
    {"embed_positions", "router", "shared_gate", "in_a_proj", "in_b_proj"}
)
# A few bits for these cost more of the text's quality than they save of its bytes.
_ALWAYS_INT8: Final = frozenset({"embed_tokens.weight", "lm_head.weight"})
# By the names that safetensors has for dtypes.
_BYTES: Final = {"I8": 1, "U8": 1, "F16": 2, "F32": 4}


def packable(spec: DecoderSpec) -> frozenset[str]:
    """The parameters that may be packed."""
    return frozenset(name for name in matrices(spec) if name.split(".")[-2] not in _LEFT_ALONE)


def packing(spec: DecoderSpec, kind: PackingKind) -> dict[str, PackingKind]:
    """How each parameter that is packed is held, where `kind` is asked for."""
    able = packable(spec)
    return {
        name: "int8" if name in _ALWAYS_INT8 else kind
        for name in parameter_shapes(spec)
        if name in able
    }


def int8_group(width: int) -> int | None:
    """How many columns of a row share a scale in int8; None where a whole row has to."""
    return next((group for group in _INT8_GROUPS if width % group == 0), None)


def packed_parts(
    shape: Shape, kind: PackingKind, *, group: int = INT4_GROUP
) -> dict[str, tuple[str, Shape]]:
    """The tensors that hold a matrix [C_out, C_in]: by name, dtype and shape."""
    rows, width = shape
    if kind == "int8":
        return {
            "codes": ("I8", shape),
            "scale": ("F32", (rows, width // (int8_group(width) or width))),
        }
    groups = -(-width // group)
    return {
        "codes": ("U8", (rows, groups, group // 2)),
        "scale": ("F16", (rows, groups)),
        "minimum": ("F16", (rows, groups)),
    }


def packed_bytes(shape: Shape, kind: PackingKind, *, group: int = INT4_GROUP) -> int:
    """Of all tensors that hold the matrix."""
    parts = packed_parts(shape, kind, group=group).values()
    return sum(_BYTES[dtype] * prod(size) for dtype, size in parts)
