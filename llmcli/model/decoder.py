"""The decoder: embedding, layers, final norm and head, chosen by a spec."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from llmcli.cache import KVCache
from llmcli.model.attention import Context, Visibility
from llmcli.model.block import Block
from llmcli.model.linear import Linear
from llmcli.model.masks import causal_mask
from llmcli.model.norm import make_norm
from llmcli.model.rope import RotaryTable
from llmcli.spec import DecoderSpec, Learned, Rope


class Decoder(nn.Module):
    """ids [B,T] -> logits; with a cache, the ids are those that follow what it holds."""

    def __init__(self, spec: DecoderSpec) -> None:
        super().__init__()
        self.spec = spec
        self.embed_tokens = Embedding(spec.vocab_size, spec.hidden_size)
        self.embed_positions: Embedding | None = None
        if isinstance(spec.positions, Learned):
            rows = spec.max_positions + spec.positions.offset
            self.embed_positions = Embedding(rows, spec.hidden_size)
            self._offset = spec.positions.offset
        self.layers = nn.ModuleList(Block(spec) for _ in spec.layers)
        self.norm = make_norm(spec)
        self.lm_head: Linear | None = None
        if not spec.tie_embeddings:
            self.lm_head = Linear(spec.hidden_size, spec.vocab_size, bias=False)
        self._ropes = [layer.rope for layer in spec.layers]
        self._tables = {rope: RotaryTable(rope) for rope in set(self._ropes) if rope}

    @classmethod
    def filled(cls, spec: DecoderSpec, parameters: Iterable[tuple[str, Tensor]]) -> Decoder:
        """A decoder whose parameters *are* the given tensors; nothing is allocated or copied.

        Raises KeyError for a name that the spec does not have; asserts that none is left empty.
        """
        with torch.device("meta"):
            decoder = cls(spec)
        for name, tensor in parameters:
            path, _, leaf = name.rpartition(".")
            module = decoder.get_submodule(path)
            if leaf not in module._parameters:
                raise KeyError(name)
            module._parameters[leaf] = nn.Parameter(tensor, requires_grad=False)
        empty = [name for name, parameter in decoder.named_parameters() if parameter.is_meta]
        assert not empty, f"parameters left without weights: {empty}"
        return decoder

    @property
    def device(self) -> torch.device:
        return self.embed_tokens.weight.device

    @property
    def dtype(self) -> torch.dtype:
        return self.embed_tokens.weight.dtype

    def forward(
        self, ids: Tensor, cache: KVCache | None = None, *, last_only: bool = True
    ) -> Tensor:
        """Logits [B,1,V] of the last id, or of all of them [B,T,V]."""
        x = self.hidden(ids, cache)
        return self.unembed(x[:, -1:] if last_only else x)

    def hidden(self, ids: Tensor, cache: KVCache | None = None) -> Tensor:
        """The residual stream [B,T,C] after the last layer, as `unembed` takes it."""
        start, new = (cache.length if cache is not None else 0), ids.shape[1]
        positions = torch.arange(start, start + new, device=ids.device)
        x: Tensor = self.embed_tokens(ids)  # [B,T,C]
        if self.embed_positions is not None:
            x = x + self.embed_positions(positions + self._offset)
        contexts = self._contexts(positions, start + new, cache, x.dtype)
        for index, block in enumerate(self.layers):
            x = block(x, index, contexts[self._ropes[index]])
        if cache is not None:
            cache.advance(new)
        return x

    def unembed(self, x: Tensor) -> Tensor:
        """The residual stream [B,T,C] through the final norm and the head: logits [B,T,V]."""
        head = self.embed_tokens if self.lm_head is None else self.lm_head
        return nn.functional.linear(self.norm(x), head.weight)

    def _contexts(
        self, positions: Tensor, stop: int, cache: KVCache | None, dtype: torch.dtype
    ) -> dict[Rope | None, Context]:
        """One context per distinct kind of layer, made once a forward."""
        visibility = _visibility(positions, cache)
        return {
            rope: Context(
                visibility,
                self._tables[rope].at(positions, stop, dtype) if rope else None,
                cache,
            )
            for rope in dict.fromkeys(self._ropes)
        }


class Embedding(nn.Module):
    """A table of rows, looked up by id."""

    def __init__(self, rows: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(rows, width), requires_grad=False)

    def forward(self, ids: Tensor) -> Tensor:
        return nn.functional.embedding(ids, self.weight)


def _visibility(positions: Tensor, cache: KVCache | None) -> Visibility:
    new = positions.shape[0]
    if new == 1:
        return Visibility()
    if cache is None or cache.length == 0:
        return Visibility(is_causal=True)
    return Visibility(mask=causal_mask(positions, cache.key_positions(0, new, positions)))
