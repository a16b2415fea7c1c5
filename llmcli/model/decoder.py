"""The decoder: embedding, layers, final norm and head, chosen by a spec."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import prod

import torch
from torch import Tensor, nn

from llmcli.cache import KVCache, Slot, Turn, make_cache
from llmcli.kernels.team import Team
from llmcli.model.attend import Attending, Visibility
from llmcli.model.block import make_block
from llmcli.model.captured import CapturedSteps, Record, uncapturable
from llmcli.model.context import Context
from llmcli.model.embedding import Embedding, rounded, sinusoids
from llmcli.model.fused import FusedStep, obstacle
from llmcli.model.head import Head
from llmcli.model.linear import Linear, Weighted
from llmcli.model.masks import alibi_bias
from llmcli.model.norm import make_norm
from llmcli.model.packed import Packed
from llmcli.model.places import Places
from llmcli.model.product import Product
from llmcli.model.rope import RotaryTable
from llmcli.spec import Alibi, DecoderSpec, LayerSpec, Learned, Rope, Sinusoidal


class Decoder(nn.Module):
    """ids [B,T] -> logits; with a cache, the ids are those that follow what it holds."""

    def __init__(self, spec: DecoderSpec) -> None:
        super().__init__()
        self.spec = spec
        self.embed_tokens = Embedding(spec.vocab_size, spec.embed_width)
        self.embed_proj = self.head_proj = self.embed_positions = None
        if spec.embed_size is not None:
            self.embed_proj = Linear(spec.embed_size, spec.hidden_size, bias=False)
            self.head_proj = Linear(spec.hidden_size, spec.embed_size, bias=False)
        if isinstance(spec.positions, Learned):
            rows = spec.max_positions + spec.positions.offset
            self.embed_positions = Embedding(rows, spec.hidden_size)
        self.embed_norm = make_norm(spec) if spec.embed_norm else None
        self.layers = nn.ModuleList(make_block(spec, layer) for layer in spec.layers)
        self.norm = make_norm(spec) if spec.final_norm else nn.Identity()
        self.lm_head = Head(spec)
        # Layers of one kind differ in their weights alone; each kind has its first layer's index.
        self._kinds = {layer: index for index, layer in reversed([*enumerate(spec.layers)])}
        self._tables = {kind.rope: RotaryTable(kind.rope) for kind in self._kinds if kind.rope}
        self._dtype: torch.dtype | None = None
        self._fused: FusedStep | None = None
        self._captured: CapturedSteps | None = None
        self._watchers = 0

    @classmethod
    def filled(
        cls,
        spec: DecoderSpec,
        parameters: Iterable[tuple[str, Tensor | Packed]],
        *,
        dtype: torch.dtype | None = None,
    ) -> Decoder:
        """A decoder whose parameters *are* the given tensors; nothing is allocated or copied.

        It computes in `dtype`, or in that of its embedding; matrices may be narrower or packed.
        Raises KeyError for a name that the spec does not have; asserts that none is left empty.
        """
        with torch.device("meta"):
            decoder = cls(spec)
        decoder._dtype = dtype
        for name, tensor in parameters:
            path, _, leaf = name.rpartition(".")
            module = decoder.get_submodule(path)
            if leaf not in module._parameters:
                raise KeyError(name)
            if isinstance(tensor, Packed):
                assert isinstance(module, Weighted), name
                module.hold(tensor)
            else:
                module._parameters[leaf] = nn.Parameter(tensor, requires_grad=False)
        empty = [name for name, parameter in decoder.named_parameters() if parameter.is_meta]
        assert not empty, f"parameters left without weights: {empty}"
        return decoder

    def accelerate(self, team: Team) -> None:
        """Steps of a few tokens run in compiled kernels from now on, where these can.

        Meant for a decoder on the CPU that computes in float32 and whose weights stay as they are.
        """
        if obstacle(self.spec) is None:
            fused = FusedStep(self.layers, self.spec, team)
            self._fused = fused if fused.ready else None
        product = Product(team)
        for module in self.modules():
            if isinstance(module, Weighted):
                module.product = product

    def capture(self, record: Record | None) -> None:
        """Steps of one token a row are recorded and played again from now on, where they can be;
        None ends it. Meant for a decoder whose weights stay as they are.
        """
        possible = uncapturable(self.spec) is None
        self._captured = CapturedSteps(record) if record is not None and possible else None

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Inside, forwards run module by module, as hooks need them to."""
        self._watchers += 1
        try:
            yield
        finally:
            self._watchers -= 1

    @property
    def fused(self) -> bool:
        """Whether a step of a few tokens runs all layers in one kernel."""
        return self._fused is not None

    @property
    def device(self) -> torch.device:
        return self.embed_tokens.device

    @property
    def dtype(self) -> torch.dtype:
        """What it computes in."""
        if self._dtype is not None:
            return self._dtype
        assert self.embed_tokens.weight is not None
        return self.embed_tokens.weight.dtype

    def bytes_a_number(self) -> dict[str, float]:
        """In what each matrix is held, by its parameter's name: a narrow or packed one in less."""
        return {
            f"{name}.weight": module.nbytes / prod(module.shape)
            for name, module in self.named_modules()
            if isinstance(module, Weighted) and module.owns
        }

    def forward(
        self,
        ids: Tensor,
        cache: KVCache | None = None,
        *,
        last_only: bool = True,
        regime: tuple[int, ...] | None = None,
        pads: Tensor | None = None,
        piece: int | None = None,
    ) -> Tensor:
        """Logits [B,1,V] of the last id, or of all of them [B,T,V].

        `regime` (DecoderSpec.regime) picks the rotary tables where these depend on the length;
        left out, it follows from the ids given and those cached. `pads` [B] counts the slots in
        front of each row that are not part of its text (spec.can_pad says whether it may have any).
        `piece` is how many ids without a cache go through a layer at a time; all, left out.
        """
        x = self.hidden(ids, cache, regime=regime, pads=pads, piece=piece)
        return self.unembed(x[:, -1:] if last_only else x)

    def hidden(
        self,
        ids: Tensor,
        cache: KVCache | None = None,
        *,
        regime: tuple[int, ...] | None = None,
        pads: Tensor | None = None,
        piece: int | None = None,
    ) -> Tensor:
        """The residual stream [B,T,C] after the last layer, as `unembed` takes it."""
        places = Places.after(cache.length if cache is not None else 0, ids, pads)
        regime = self.spec.regime(places.stop, places.stop) if regime is None else regime
        whole = cache is not None or piece is None or ids.shape[1] <= piece
        fused = self._fused
        if fused is not None and whole and ids.numel() <= fused.most_tokens:
            slots = self._slots(fused, cache, *ids.shape, padded=pads is not None)
            if slots is not None:
                return self._fused_step(fused, ids, places, regime, cache, slots)
        step = self._captured
        if step is not None and cache is not None and ids.shape[1] == 1 and not self._watchers:
            played = step.run(self, ids, regime, cache, pads)
            if played is not None:
                return played
        x = self.embed(ids, places.positions(places.slots))
        if cache is None and piece is not None and ids.shape[1] > piece:
            return self._in_pieces(x, torch.split(ids, piece, 1), regime, pads)
        contexts = self._contexts(places, regime, cache, x.dtype, self._kinds)
        if cache is not None:
            cache.begin(regime)
        for index, (block, kind) in enumerate(zip(self.layers, self.spec.layers, strict=True)):
            x = block(x, index, contexts[kind])
        if cache is not None:
            cache.advance(ids.shape[1])
        return x

    def _in_pieces(
        self, x: Tensor, pieces: Sequence[Tensor], regime: tuple[int, ...], pads: Tensor | None
    ) -> Tensor:
        """All layers over x [B,T,C], a piece of the ids at a time, layer after layer.

        Keys and values are held for one layer alone, and activations for one piece.
        """
        scratch = make_cache("static", self.spec, planned=x.shape[1])
        assert scratch is not None
        for index, (block, kind) in enumerate(zip(self.layers, self.spec.layers, strict=True)):
            scratch.length, done = 0, []
            for ids in pieces:
                places = Places.after(scratch.length, ids, pads)
                context = self._contexts(places, regime, scratch, x.dtype, {kind: index})[kind]
                done.append(block(x[:, scratch.length : places.stop], index, context))
                scratch.length = places.stop
            scratch.stores[index].clear()
            # Not written into x, which a tap may have kept.
            x = torch.cat(done, 1)
        return x

    def _slots(
        self, fused: FusedStep, cache: KVCache | None, rows: int, tokens: int, *, padded: bool
    ) -> list[Slot] | None:
        """Where the kernels may put these tokens, or None where the modules have to."""
        # Of several tokens some may stand in padding, which sees itself alone.
        if self._watchers or (padded and tokens > 1):
            return None
        if cache is None:
            # A layer is done with its keys before the next one has any.
            keys, values = torch.empty(2, *fused.like(rows, tokens).shape)
            slot = Slot(keys, values, 0, 0, 1, ordered=True)
            return [slot] * len(self.layers)
        slots = cache.slots(fused.like(rows, tokens))
        if slots is None or (padded and not all(slot.ordered for slot in slots)):
            return None
        return slots

    def _fused_step(
        self,
        fused: FusedStep,
        ids: Tensor,
        places: Places,
        regime: tuple[int, ...],
        cache: KVCache | None,
        slots: list[Slot],
    ) -> Tensor:
        positions, turns = places.positions(places.slots), {}
        for rope, (cos, sin) in self.tables(places.stop, regime).items():
            if ids.numel() == 1:
                turns[rope] = cos[places.stop - 1], sin[places.stop - 1]
            else:
                at = positions.expand(ids.shape).flatten()
                turns[rope] = cos[at], sin[at]
        if cache is not None:
            cache.begin(regime)
        x = fused.run(self.embed(ids, positions), slots, turns, places.pads)
        if cache is not None:
            cache.advance(ids.shape[1])
        return x

    def drop(self, cache: KVCache, first: int, count: int) -> None:
        """Make the cache forget `count` tokens after the `first`; the later ones move down.

        Positions are then those inside the cache (StreamingLLM, arXiv 2309.17453).
        """
        assert self.spec.shift_obstacle is None
        cache.drop(first, count, [self._turn(index, count) for index in range(len(self.layers))])

    def _turn(self, index: int, count: int) -> Turn:
        rope = self.spec.layers[index].rope
        if rope is None:
            return lambda keys, _start: keys.clone()
        table, mixer = self._tables[rope], self.layers[index].get_submodule("attn")
        assert isinstance(mixer, Attending)

        def turn(keys: Tensor, start: int) -> Tensor:
            cos, sin = table.back(start, keys.shape[2], count, 0, keys.device)
            wide = keys.to(torch.promote_types(keys.dtype, torch.float32))
            return mixer.turn(wide, cos.to(wide.dtype), sin.to(wide.dtype)).to(keys.dtype)

        return turn

    def embed(self, ids: Tensor, positions: Tensor) -> Tensor:
        """ids [B,T] at positions [T] or [B,T] to the residual stream [B,T,C] of the layers."""
        spec = self.spec
        x: Tensor = self.embed_tokens(ids).to(self.dtype)
        if spec.embed_scale != 1:
            # Rounded to the working dtype first, as Gemma's own code does.
            x = x * rounded(spec.embed_scale, x.dtype)
        if self.embed_proj is not None:
            x = self.embed_proj(x)
        if self.embed_positions is not None:
            assert isinstance(spec.positions, Learned)
            x = x + self.embed_positions(positions + spec.positions.offset).to(x.dtype)
        elif isinstance(spec.positions, Sinusoidal):
            x = x + sinusoids(positions + spec.positions.offset, x.shape[-1], x.dtype)
        return x if self.embed_norm is None else self.embed_norm(x)

    def unembed(self, x: Tensor) -> Tensor:
        """The residual stream [B,T,C] through the final norm and the head: logits [B,T,V]."""
        x = self.norm(x)
        if self.head_proj is not None:
            x = self.head_proj(x)
        logits: Tensor = self.lm_head(x, self.embed_tokens)
        return logits

    def _contexts(
        self,
        places: Places,
        regime: tuple[int, ...],
        cache: KVCache | None,
        dtype: torch.dtype,
        kinds: Mapping[LayerSpec, int],
    ) -> dict[LayerSpec, Context]:
        """One context for each of these kinds of layers, given with a layer that is of it."""
        regimes = self._regimes(regime)
        positions = places.positions(places.slots)
        if places.pads is not None:
            positions = positions[:, None]  # [B,1,T], as heads lie between rows and tokens
        rotations = {
            rope: table.at(positions, places.stop, regimes[rope], dtype)
            for rope, table in self._tables.items()
            if any(kind.rope == rope for kind in kinds)
        }
        seen: dict[int | None, Visibility] = {}
        contexts = {}
        for kind, index in kinds.items():
            if kind.mixer != "attention":
                contexts[kind] = Context(Visibility(), None, cache)
                continue
            if kind.window not in seen:
                seen[kind.window] = self._visibility(kind, index, places, cache, dtype)
            rotation = rotations[kind.rope] if kind.rope else None
            contexts[kind] = Context(seen[kind.window], rotation, cache)
        return contexts

    def tables(self, stop: int, regime: tuple[int, ...]) -> dict[Rope, tuple[Tensor, Tensor]]:
        """cos and sin float32 [rows,dim] of every rotary table, for positions below `stop`."""
        regimes = self._regimes(regime)
        return {
            rope: table.upto(stop, regimes[rope], self.device)
            for rope, table in self._tables.items()
        }

    def _regimes(self, regime: tuple[int, ...]) -> dict[Rope, int]:
        ropes = dict.fromkeys(layer.rope for layer in self.spec.layers)
        return dict(zip((rope for rope in ropes if rope), regime, strict=True))

    def _visibility(
        self,
        kind: LayerSpec,
        index: int,
        places: Places,
        cache: KVCache | None,
        dtype: torch.dtype,
    ) -> Visibility:
        new, held = places.slots.shape[0], (cache.length if cache is not None else 0)
        if new == 1 and places.pads is None and not isinstance(self.spec.positions, Alibi):
            return Visibility()
        keys = places.slots
        if held and cache is not None:
            keys = cache.key_positions(index, new, places.slots)
        if isinstance(self.spec.positions, Alibi):
            bias = alibi_bias(
                self.spec.positions,
                places.positions(keys),
                num_heads=self.spec.num_heads,
                scale=self.spec.attn_scale,
                dtype=dtype,
            )
            mask = places.visible(keys, kind.window)
            return Visibility(mask=bias.masked_fill(~mask, float("-inf")))
        if places.pads is None and not held and (kind.window is None or kind.window >= new):
            return Visibility(is_causal=True)
        return Visibility(mask=places.visible(keys, kind.window))
