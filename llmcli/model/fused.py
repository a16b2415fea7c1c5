"""Decode on a CPU in compiled kernels: which decoders can have it, and what the kernels are told.

The kernels (kernels/) know addresses and sizes. Here a decoder's modules become these, once; at
each step only the places in the cache and the rows of the rotary tables are told anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from llmcli.cache import Slot
from llmcli.kernels.team import Team
from llmcli.model.block import Block, SharedParallelBlock
from llmcli.model.linear import Linear, Weighted
from llmcli.model.matrices import Described, describe, vector
from llmcli.spec import Alibi, DecoderSpec, Rope

# In the order of their numbers in kernels/parts.py and kernels/step.py.
_ACTIVATIONS = ("silu", "gelu", "gelu_tanh", "gelu_quick", "relu")
_QK_NORMS = (None, "per_head", "each_head", "full")
_RESIDUALS = {"parallel": 1, "parallel_shared": 1, "post": 2}
_MATRICES = (
    "attn.q_proj",
    "attn.k_proj",
    "attn.v_proj",
    "attn.o_proj",
    "mlp.gate_proj",
    "mlp.up_proj",
    "mlp.down_proj",
)
_NORMS = (
    "attn_norm",
    "post_attn_norm",
    "mlp_norm",
    "post_mlp_norm",
    "attn.q_norm",
    "attn.k_norm",
)
# With more rows than these torch's matrix products are faster.
_MOST_ROWS = 32
_NORM_KINDS = {"rms": 1, "layer": 2}


def obstacle(spec: DecoderSpec) -> str | None:
    """What the step in kernels does not know; None where it can run this decoder."""
    if spec.latent is not None:
        return "latent attention"
    if any(layer.mixer != "attention" for layer in spec.layers):
        return "recurrent layers"
    if any(layer.sparse for layer in spec.layers):
        return "sparse experts"
    if isinstance(spec.positions, Alibi):
        return "ALiBi"
    if spec.output_gate is not None:
        return "output gates"
    if spec.sinks:
        return "attention sinks"
    if spec.activation not in _ACTIVATIONS:
        return f"the activation {spec.activation}"
    return None


class Product:
    """A matrix times one vector, or a few of them, reading each weight once."""

    def __init__(self, team: Team) -> None:
        self._team = team
        self._known: dict[Weighted, tuple[Any, Described] | None] = {}
        self._x = np.zeros((1, 0), np.float32)
        self._scratch = np.zeros((team.size, 0), np.float32)

    def times(self, owner: Weighted, x: Tensor, bias: Tensor | None) -> Tensor | None:
        """x [...,C_in] of few rows times the matrix; None where the kernels cannot, or torch is
        faster.
        """
        count = x.numel() // x.shape[-1]
        if count != 1 and (count > _MOST_ROWS or owner.dtype == torch.float32):
            return None
        if owner not in self._known:
            found = describe(owner, bias)
            self._known[owner] = (np.array(found.numbers, np.int64), found) if found else None
        known = self._known[owner]
        if known is None:
            return None
        matrix, described = known
        rows, columns = owner.shape
        room = columns + described.group
        if self._scratch.shape[1] < room:
            self._scratch = np.zeros((self._team.size, room), np.float32)
        if self._x.shape[0] != count or self._x.shape[1] < room:
            self._x = np.zeros((count, room), np.float32)
        self._x[:, :columns] = x.reshape(count, columns).numpy()
        self._x[:, columns:room] = 0
        y = np.empty((count, rows), np.float32)
        self._team.run(self._team.kernels.product, matrix, self._x, self._scratch, y)
        return torch.from_numpy(y).view(*x.shape[:-1], rows)


class FusedStep:
    """All layers of a decoder for one token of one row."""

    def __init__(self, layers: nn.ModuleList, spec: DecoderSpec, team: Team) -> None:
        assert obstacle(spec) is None, obstacle(spec)
        self._team, self._spec = team, spec
        self._blocks = [layer for layer in layers if isinstance(layer, Block)]
        self._tables: Any = None
        self._kept: list[Tensor] = []
        self._like = torch.empty(1, spec.num_kv_heads, 1, spec.head_dim)
        self._reach = 0
        self.ready = self._describe()

    @property
    def like(self) -> Tensor:
        """Keys or values of one token, by their shape and dtype."""
        return self._like

    def run(
        self,
        x: Tensor,
        slots: Sequence[Slot],
        rows: Mapping[Rope, tuple[Tensor, Tensor]],
    ) -> Tensor:
        """The stream x [1,1,C] behind the last layer. `rows` are cos and sin [dim] of its place."""
        kernels = self._team.kernels
        if self._tables is None:
            self._tables = np.array(self._numbers, np.int64)
            self._places = np.zeros((len(self._blocks), kernels.steps.PLACE), np.int64)
        self._make_room(max(slot.last - slot.first for slot in slots))
        self._tell_places(slots, rows)
        stream = x.reshape(-1).numpy().copy()
        self._team.run(
            kernels.step,
            self._team.barrier,
            self._facts,
            self._reals,
            self._tables,
            self._places,
            stream,
            self._shared,
            self._own,
        )
        return torch.from_numpy(stream).view(x.shape)

    def _describe(self) -> bool:
        """Whether every matrix is one that the kernels can read; their tables, if so."""
        spec = self._spec
        self._numbers, groups = [], [1]
        for block in self._blocks:
            numbers: list[int] = []
            for path in _MATRICES:
                module = _part(block, path)
                if module is None:
                    numbers += [0] * 8
                    continue
                assert isinstance(module, Linear)
                found = describe(module, module.bias)
                if found is None:
                    return False
                numbers += found.numbers
                groups.append(found.group)
                self._kept += found.kept
            for held in _vectors(block):
                numbers.append(0 if held is None else held.data_ptr())
                self._kept += () if held is None else (held,)
            self._numbers.append(numbers)
        self._facts = np.array(
            [
                len(self._blocks),
                spec.hidden_size,
                spec.num_heads,
                spec.num_kv_heads,
                spec.head_dim,
                spec.intermediate_size,
                _NORM_KINDS[spec.norm],
                _QK_NORMS.index(spec.qk_norm),
                _ACTIVATIONS.index(spec.activation),
                _RESIDUALS.get(spec.residual, 0),
                spec.mlp == "gated",
            ],
            np.int64,
        )
        self._reals = np.array(
            [
                spec.norm_eps,
                spec.norm_offset if spec.norm == "rms" else 0,
                spec.attn_scale,
                spec.residual_scale,
                spec.attn_softcap or 0,
            ],
            np.float32,
        )
        self._most = max(groups)
        return True

    def _make_room(self, keys: int) -> None:
        """Scratch memory for steps that see so many keys."""
        if keys <= self._reach:
            return
        self._reach = max(512, 1 << keys.bit_length())
        spec, team = self._spec, self._team.size
        width = spec.num_heads * spec.head_dim
        wide = width + 2 * spec.num_kv_heads * spec.head_dim
        largest = max(spec.hidden_size, width, spec.intermediate_size) + self._most

        def room(*shape: int) -> Any:
            return np.zeros(shape, np.float32)

        self._shared = (
            room(wide),
            room(spec.hidden_size),
            room(3, spec.intermediate_size + self._most),
            room(team, width),
            room(team, spec.num_heads),
            room(team, spec.num_heads),
        )
        self._own = (
            room(team, spec.hidden_size),
            room(team, spec.hidden_size + self._most),
            room(team, width + self._most),
            room(team, self._reach * spec.group_size),
            room(team, largest),
        )

    def _tell_places(
        self, slots: Sequence[Slot], rows: Mapping[Rope, tuple[Tensor, Tensor]]
    ) -> None:
        turns = {
            rope: (2 if rope.interleaved else 1, cos.data_ptr(), sin.data_ptr(), rope.dim)
            for rope, (cos, sin) in rows.items()
        }
        nothing = (0, 0, 0, 0)
        self._places[:] = [
            (
                slot.keys.data_ptr(),
                slot.values.data_ptr(),
                slot.keys.stride(1),
                slot.at,
                slot.first,
                slot.last,
                *(turns[layer.rope] if layer.rope else nothing),
            )
            for slot, layer in zip(slots, self._spec.layers, strict=True)
        ]


def _part(block: Block, path: str) -> nn.Module | None:
    module: Any = block
    for name in path.split("."):
        module = getattr(module, name, None)
    return module if isinstance(module, nn.Module) and not isinstance(module, nn.Identity) else None


def _vectors(block: Block) -> Iterator[Tensor | None]:
    """Weights and biases of the norms as float32, in the kernels' order."""
    for path in _NORMS:
        module = _part(block, path)
        if module is None and path == "mlp_norm" and isinstance(block, SharedParallelBlock):
            module = block.attn_norm
        for name in ("weight", "bias"):
            held = getattr(module, name, None)
            yield None if held is None else vector(held)
