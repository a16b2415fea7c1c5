"""Edits as they are asked for: which layers, heads and MLPs are taken out or turned up and down.

Checked against the spec alone. Must not know torch or terminals.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from llmcli.checkpoint.escape import printable
from llmcli.errors import UsageError
from llmcli.insight.bounds import check_index
from llmcli.spec import DecoderSpec

_HEAD = re.compile(r"([0-9]+)\.([0-9]+)", re.ASCII)
_SCALE = re.compile(r"([0-9]+)=(.+)", re.ASCII)
# Factors beyond this overflow half precision at once.
_MOST = 1e4


@dataclass(frozen=True, slots=True, kw_only=True)
class Edits:
    """`heads` by layer; `mlps` are factors by layer, 0 of those taken out."""

    skip: frozenset[int] = frozenset()
    heads: Mapping[int, frozenset[int]] = field(default_factory=dict)
    mlps: Mapping[int, float] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.skip or self.heads or self.mlps)

    def told(self) -> tuple[str, ...]:
        """Each in plain words."""
        heads = [(layer, head) for layer, all_ in sorted(self.heads.items()) for head in all_]
        return (
            *(f"layer {layer} skipped" for layer in sorted(self.skip)),
            *(f"head {layer}.{head} zeroed" for layer, head in sorted(heads)),
            *(
                f"MLP {layer} zeroed" if factor == 0 else f"MLP {layer} times {factor:g}"
                for layer, factor in sorted(self.mlps.items())
            ),
        )


def read_edits(
    spec: DecoderSpec,
    *,
    skip_layer: Sequence[int] = (),
    zero_head: Sequence[str] = (),
    zero_mlp: Sequence[int] = (),
    scale_mlp: Sequence[str] = (),
) -> Edits:
    """Heads are given as LAYER.HEAD, factors as LAYER=FACTOR. Raises UsageError."""
    for layer in skip_layer:
        check_index("--skip-layer", layer, spec.num_layers, "layers")
    heads: dict[int, frozenset[int]] = {}
    for text in zero_head:
        layer, head = _head(text, spec)
        heads[layer] = heads.get(layer, frozenset()) | {head}
    mlps: dict[int, float] = {}
    for layer in zero_mlp:
        check_index("--zero-mlp", layer, spec.num_layers, "layers")
        mlps[layer] = 0.0
    for text in scale_mlp:
        layer, factor = _scale(text, spec)
        if layer in mlps:
            raise UsageError(
                f"--scale-mlp {text}: the MLP of layer {layer} is changed twice",
                hint="give one factor a layer",
            )
        mlps[layer] = factor
    if both := sorted(set(skip_layer) & (heads.keys() | mlps.keys())):
        raise UsageError(
            f"layer {both[0]} is skipped, so that changing a part of it changes nothing",
            hint=f"leave out --skip-layer {both[0]}, or the other option",
        )
    return Edits(skip=frozenset(skip_layer), heads=heads, mlps=mlps)


def has_heads(spec: DecoderSpec, layer: int) -> bool:
    """Whether the layer has attention."""
    return spec.layers[layer].mixer == "attention"


def _head(text: str, spec: DecoderSpec) -> tuple[int, int]:
    match = _HEAD.fullmatch(text)
    if match is None:
        raise UsageError(
            f"--zero-head {printable(repr(text), 60)} is not LAYER.HEAD",
            hint="head 5 of layer 3 is --zero-head 3.5; both are counted from 0",
        )
    layer, head = map(int, match.groups())
    check_index(f"--zero-head {text}: the layer", layer, spec.num_layers, "layers")
    if not has_heads(spec, layer):
        mixer = spec.layers[layer].mixer.replace("_", " ")
        able = [str(one) for one in range(spec.num_layers) if has_heads(spec, one)]
        raise UsageError(
            f"--zero-head {text}: layer {layer} is recurrent ({mixer}) and has no attention heads",
            hint=f"layers with heads: {', '.join(able)}" if able else "use --skip-layer",
        )
    check_index(f"--zero-head {text}: the head", head, spec.num_heads, f"heads in layer {layer}")
    return layer, head


def _scale(text: str, spec: DecoderSpec) -> tuple[int, float]:
    match = _SCALE.fullmatch(text)
    try:
        factor = float(match[2]) if match else math.nan
    except ValueError:
        factor = math.nan
    if match is None or not abs(factor) <= _MOST:
        raise UsageError(
            f"--scale-mlp {printable(repr(text), 60)} is not LAYER=FACTOR, "
            f"with a factor from -{_MOST:g} to {_MOST:g}",
            hint="half of the MLP of layer 4 is --scale-mlp 4=0.5",
        )
    layer = int(match[1])
    check_index(f"--scale-mlp {text}: the layer", layer, spec.num_layers, "layers")
    return layer, factor
