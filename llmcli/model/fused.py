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
from llmcli.kernels import layout
from llmcli.kernels.rooms import Sizes, reach, rooms
from llmcli.kernels.team import Team
from llmcli.model.block import Block, SharedParallelBlock
from llmcli.model.job import Job
from llmcli.model.linear import Linear
from llmcli.model.matrices import describe, vector
from llmcli.model.product import LONG, MOST_ROWS
from llmcli.spec import Alibi, DecoderSpec, Rope, count_parameters

# In the order of their numbers in kernels/layout.py.
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


class FusedStep:
    """All layers of a decoder for one token or a few: rows of a batch, or tokens of one row."""

    def __init__(self, layers: nn.ModuleList, spec: DecoderSpec, team: Team) -> None:
        assert obstacle(spec) is None, obstacle(spec)
        self._team, self._spec = team, spec
        self._blocks = [layer for layer in layers if isinstance(layer, Block)]
        self._kept: list[Tensor] = []
        self._rooms, self._units = [1], [1]
        self._job = Job()
        self._reach = self._most = 0
        self.most_tokens = MOST_ROWS
        self._weights = count_parameters(spec)
        self._places = np.zeros((len(self._blocks), layout.PLACE), np.int64)
        self._places[:, layout.WINDOW] = [layer.window or 0 for layer in spec.layers]
        self.ready = self._describe()

    def like(self, rows: int, tokens: int) -> Tensor:
        """Keys or values of so many tokens [rows,K,tokens,D], by their shape and dtype."""
        spec = self._spec
        return torch.empty(1).expand(rows, spec.num_kv_heads, tokens, spec.head_dim)

    def run(
        self,
        x: Tensor,
        slots: Sequence[Slot],
        turns: Mapping[Rope, tuple[Tensor, Tensor]],
        pads: Tensor | None = None,
    ) -> Tensor:
        """The streams x [B,T,C] behind the last layer.

        `turns` are cos and sin [B * T, dim] of the tokens' places; `pads` [B] the slots in front
        of each row that it does not see.
        """
        kernels, job = self._team.kernels, self._job
        count = x.shape[0] * x.shape[1]
        self._make_room(count, max(slot.last - slot.first for slot in slots) + x.shape[1])
        self._tell_places(slots, turns)
        streams = x.reshape(count, -1).clone()
        job.lend(layout.STREAM, streams)
        job.say(layout.COUNT, count, x.shape[1])
        if pads is None:
            job.say(layout.PADS, 0)
        else:
            job.give(layout.PADS, pads.numpy().astype(np.int64))
        kernel = kernels.step if count == 1 else kernels.several
        self._team.run(kernel, job.address, aside=count * self._weights > LONG)
        return streams.view(x.shape)

    def _describe(self) -> bool:
        """Whether every matrix is one that the kernels can read; the job's tables, if so."""
        spec, tables = self._spec, []
        for block in self._blocks:
            numbers: list[int] = []
            for path in _MATRICES:
                module = _part(block, path)
                if module is None:
                    numbers += [0] * layout.FIELDS
                    continue
                assert isinstance(module, Linear)
                found = describe(module, module.bias)
                if found is None:
                    return False
                numbers += found.numbers
                self._rooms.append(found.room)
                self._units.append(found.unit)
                self._kept += found.kept
            for held in _vectors(block):
                numbers.append(0 if held is None else held.data_ptr())
                self._kept += () if held is None else (held,)
            tables.append(numbers)
        facts = (
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
        )
        reals = (
            spec.norm_eps,
            spec.norm_offset if spec.norm == "rms" else 0,
            spec.attn_scale,
            spec.residual_scale,
            spec.attn_softcap or 0,
        )
        job = self._job
        job.give(layout.TABLES, np.array(tables, np.int64))
        job.give(layout.SHARED_FACTS, np.array(facts, np.int64))
        job.give(layout.SHARED_REALS, np.array(reals, np.float32))
        job.give(layout.PLACES, self._places)
        job.give(layout.BARRIER, self._team.barrier)
        return True

    def _make_room(self, tokens: int, keys: int) -> None:
        """Memory for so many tokens that see so many keys."""
        if keys <= self._reach and tokens <= self._most:
            return
        self._reach, self._most = max(reach(keys), self._reach), tokens
        spec = self._spec
        sizes = Sizes(
            hidden=spec.hidden_size,
            inner=spec.intermediate_size,
            heads=spec.num_heads,
            kv_heads=spec.num_kv_heads,
            head_dim=spec.head_dim,
            unit=max(self._units),
            scratch=max(self._rooms),
        )
        made = rooms(sizes, team=self._team.size, tokens=tokens, keys=self._reach)
        for field, (rows, width) in made.items():
            self._job.room(field, rows, width)

    def _tell_places(
        self, slots: Sequence[Slot], turns: Mapping[Rope, tuple[Tensor, Tensor]]
    ) -> None:
        told = {
            rope: (2 if rope.interleaved else 1, cos.data_ptr(), sin.data_ptr(), rope.dim)
            for rope, (cos, sin) in turns.items()
        }
        nothing = (0, 0, 0, 0)
        self._places[:, : layout.WINDOW] = [
            (
                slot.keys.data_ptr(),
                slot.values.data_ptr(),
                slot.keys.stride(1),
                slot.keys.stride(0),
                slot.at,
                slot.first,
                slot.last,
            )
            for slot in slots
        ]
        self._places[:, layout.ROPE :] = [
            told[layer.rope] if layer.rope else nothing for layer in self._spec.layers
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
