"""A step of one token a row that a device can play again: all it reads lies in fixed tensors.

On CUDA a step launches hundreds of small kernels, and Python is slower than they are. Recorded
once, they are launched together (a CUDA graph). Nothing in a step may then depend on a number in
Python that changes: id, place and padding are tensors, and attention looks at a whole stretch of
the cache through a mask made from the place. What playing again means is the recorder's; the
tests have one for the CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import is_
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from llmcli.cache import Fixed, KVCache
from llmcli.model.attend import Visibility
from llmcli.model.context import Context
from llmcli.model.masks import alibi_bias
from llmcli.model.places import Places
from llmcli.spec import GROWTH_STEP, Alibi, DecoderSpec, LayerSpec

if TYPE_CHECKING:
    from llmcli.model.decoder import Decoder

# Work on fixed tensors, whose result may be fixed too
Work = Callable[[], Tensor]
# Work -> the same work, recorded
Record = Callable[[Work], Work]

# Stretches of a cache that a step looks at: 256 slots, twice that, and so on; from 4096 on, 4096
# more, but for what the run will not need. Few captures then serve a long text, and attention
# reads little that does not count.
_SHORTEST, _STEP = 256, 4096


def uncapturable(spec: DecoderSpec) -> str | None:
    """What cannot be captured; None where a step of this decoder can."""
    if any(layer.mixer != "attention" for layer in spec.layers):
        return "recurrent layers"
    if any(layer.sparse for layer in spec.layers):
        return "sparse experts"
    return None


class CudaGraphs:
    """Records work as CUDA graphs of one device, which share their scratch memory."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pool: Any = None

    def __call__(self, work: Work) -> Work:
        """The work must have run once before, so that nothing is set up while recording."""
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.device(self._device):
            # A stream of this device: the one that torch keeps may belong to another.
            stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            with torch.cuda.graph(graph, pool=self._pool, stream=stream):
                out = work()

        def play() -> Tensor:
            graph.replay()
            return out

        return play


def _reach(length: int, planned: int) -> int:
    """Slots that a step behind `length` tokens looks at; without need no more than a cache that
    grows takes for `planned` tokens, the last of which is never fed.
    """
    if length >= _STEP:
        far = (length // _STEP + 1) * _STEP
    else:
        far = max(_SHORTEST, 1 << length.bit_length())
    last = max(planned - 1, length + 1)
    return min(far, -(-last // GROWTH_STEP) * GROWTH_STEP) if planned else far


class CapturedSteps:
    """Runs a decoder's steps on captures, which live as long as the memory of their cache."""

    def __init__(self, record: Record) -> None:
        self._record = record

    def run(
        self,
        decoder: Decoder,
        ids: Tensor,
        regime: tuple[int, ...],
        cache: KVCache,
        pads: Tensor | None,
    ) -> Tensor | None:
        """The stream [B,1,C] behind the last layer for ids [B,1]; None, with nothing done, where
        the cache has no fixed memory, or other memory than at the last step.
        """
        capture = cache.capture
        if not (isinstance(capture, Capture) and capture.serves(decoder, ids, regime, cache, pads)):
            # A beam search has other memory at each step, and nothing would be played again.
            seen = _Seen.of(ids, cache)
            if (capture.seen if isinstance(capture, Capture) else capture) != seen:
                cache.capture = seen
                return None
            reach = _reach(cache.length, cache.planned)
            memory = cache.fixed(reach)
            if memory is None or any(one.keys.shape[0] != ids.shape[0] for one in memory):
                return None
            cache.capture = capture = Capture(decoder, memory, cache, ids, regime, pads, reach)
        if not cache.wiped:
            cache.wipe()
        cache.begin(regime)
        stream = capture.run(ids, cache.length, pads, self._record)
        cache.wiped = True
        cache.advance(1)
        return stream


@dataclass(frozen=True, slots=True)
class _Seen:
    """Rows and memory of a step, whether captured or not."""

    rows: int
    memory: tuple[int, ...]

    @classmethod
    def of(cls, ids: Tensor, cache: KVCache) -> _Seen:
        return cls(ids.shape[0], tuple(map(id, cache.memory)))


class Capture:
    """A step on this memory, for every place below `reach`."""

    def __init__(
        self,
        decoder: Decoder,
        fixed: Sequence[Fixed],
        cache: KVCache,
        ids: Tensor,
        regime: tuple[int, ...],
        pads: Tensor | None,
        reach: int,
    ) -> None:
        self._decoder, self._fixed, self._regime = decoder, fixed, regime
        self._memory, self.seen = cache.memory, _Seen.of(ids, cache)
        self._reach = min([reach, *(one.limit for one in fixed if one.limit is not None)])
        self._tables = decoder.tables(self._reach, regime)
        self._ids = torch.empty_like(ids)
        self._at = torch.zeros(1, dtype=torch.long, device=ids.device)
        self._pads = None if pads is None else torch.empty_like(pads)
        self._ran = False
        self._play: Work | None = None

    def serves(
        self,
        decoder: Decoder,
        ids: Tensor,
        regime: tuple[int, ...],
        cache: KVCache,
        pads: Tensor | None,
    ) -> bool:
        """Whether it is this decoder's step at the cache's next place, on its present memory."""
        memory = cache.memory
        return (
            decoder is self._decoder
            and cache.length < self._reach
            and regime == self._regime
            and ids.shape == self._ids.shape
            and (pads is None) == (self._pads is None)
            and len(memory) == len(self._memory)
            and all(map(is_, memory, self._memory))
        )

    def run(self, ids: Tensor, at: int, pads: Tensor | None, record: Record) -> Tensor:
        """The stream behind the last layer for ids [B,1] at slot `at`."""
        self._ids.copy_(ids)
        self._at.fill_(at)
        if self._pads is not None and pads is not None:
            self._pads.copy_(pads)
        if not self._ran:
            self._ran = True
            return self._step()
        if self._play is None:
            self._play = record(self._step)
        # What is fixed is written over by the next step.
        return self._play().clone()

    def _step(self) -> Tensor:
        decoder, spec = self._decoder, self._decoder.spec
        places = Places(self._at, self._reach, self._pads)
        positions = places.positions(self._at)
        x = decoder.embed(self._ids, positions)
        if self._pads is not None:
            positions = positions[:, None]
        rotations = {
            rope: (cos[positions].to(x.dtype), sin[positions].to(x.dtype))
            for rope, (cos, sin) in self._tables.items()
        }
        held = _Held(self._fixed, self._at)
        seen: dict[tuple[int | None, int | None, int], Visibility] = {}
        for index, (kind, fixed) in enumerate(zip(spec.layers, self._fixed, strict=True)):
            key = kind.window, fixed.ring, fixed.size
            if key not in seen:
                seen[key] = self._visibility(kind, fixed, places, x.dtype)
            rotation = rotations[kind.rope] if kind.rope else None
            x = decoder.layers[index](x, index, Context(seen[key], rotation, held))
        return x

    def _visibility(
        self, kind: LayerSpec, fixed: Fixed, places: Places, dtype: torch.dtype
    ) -> Visibility:
        spec = self._decoder.spec
        keys = fixed.positions(self._at)
        hidden = ~(places.visible(keys, kind.window) & (keys >= 0))
        if isinstance(spec.positions, Alibi):
            bias = alibi_bias(
                spec.positions,
                places.positions(keys),
                num_heads=spec.num_heads,
                scale=spec.attn_scale,
                dtype=dtype,
            )
        else:
            bias = torch.zeros(hidden.shape, dtype=dtype, device=hidden.device)
        return Visibility(mask=bias.masked_fill(hidden, float("-inf")))


class _Held:
    """The cache as a layer sees it in a captured step."""

    def __init__(self, fixed: Sequence[Fixed], at: Tensor) -> None:
        self._fixed, self._at = fixed, at

    def update(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        fixed = self._fixed[layer]
        fixed.put(self._at, keys, values)
        return fixed.keys, fixed.values
