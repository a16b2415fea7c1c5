"""The sizes that every architecture states. Must not know config.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from llmcli.acquire.gguf.keys import Keys
from llmcli.acquire.gguf.reader import GgufFile


@dataclass(frozen=True, slots=True)
class Sizes:
    """Hugging Face's words; `rotary` is how many values of each head turn."""

    vocab: int
    hidden: int
    inner: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    rotary: int
    context: int

    def table(self) -> Mapping[str, int]:
        """By the words that tensor shapes use."""
        query, key = self.heads * self.head_dim, self.kv_heads * self.head_dim
        return {
            "vocab": self.vocab,
            "hidden": self.hidden,
            "inner": self.inner,
            "layers": self.layers,
            "heads": self.heads,
            "kv_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "context": self.context,
            "query": query,
            "key": key,
            "qkv": query + 2 * key,
            "gate_up": 2 * self.inner,
        }


def read_sizes(
    file: GgufFile, keys: Keys, *, own_head_dim: bool = True, partial: bool = False
) -> Sizes:
    """The proved sizes.

    `own_head_dim`: heads need not share out the hidden size. `partial`: rotary positions may
    turn only a part of each head.
    """
    hidden, heads = keys.size("embedding_length"), keys.size("attention.head_count")
    kv_heads = keys.size("attention.head_count_kv", heads)
    if heads % kv_heads:
        raise file.fault(f"has {heads} heads that {kv_heads} key-value heads do not divide")
    head_dim = _head_dim(file, keys, hidden=hidden, heads=heads, own=own_head_dim)
    return Sizes(
        vocab=_vocab(file),
        hidden=hidden,
        inner=keys.size("feed_forward_length"),
        layers=_layers(file, keys),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        rotary=_rotary(file, keys, head_dim, partial=partial),
        context=keys.size("context_length"),
    )


def _layers(file: GgufFile, keys: Keys) -> int:
    # Before anything is made once a layer.
    layers = keys.size("block_count")
    if layers > len(file.tensors):
        raise file.fault(f"promises {layers:,} layers and holds {len(file.tensors)} tensors")
    return layers


def _head_dim(file: GgufFile, keys: Keys, *, hidden: int, heads: int, own: bool) -> int:
    if hidden % heads and (not own or keys.get("attention.key_length") is None):
        raise file.fault(f"has {heads} heads that do not divide the hidden size {hidden}")
    head_dim = keys.size("attention.key_length", hidden // heads)
    value_dim = keys.size("attention.value_length", head_dim)
    if value_dim != head_dim:
        raise file.fault(
            f"{keys.full('attention.value_length')} is {value_dim}, the head size {head_dim}",
            "only whole rotary heads of one size can be imported",
        )
    if not own and head_dim != hidden // heads:
        raise file.fault(
            f"{keys.full('attention.key_length')} is {head_dim}, "
            f"the hidden size {hidden} over {heads} heads is {hidden // heads}",
            "config.json of this architecture has no word for a head size of its own",
        )
    return head_dim


def _rotary(file: GgufFile, keys: Keys, head_dim: int, *, partial: bool) -> int:
    rotary = keys.size("rope.dimension_count", head_dim)
    if rotary != head_dim and not (partial and rotary < head_dim and rotary % 2 == 0):
        raise file.fault(
            f"{keys.full('rope.dimension_count')} is {rotary}, the head size {head_dim}",
            "only whole rotary heads of one size can be imported",
        )
    if int(head_dim * (rotary / head_dim)) != rotary:
        raise file.fault(
            f"{keys.full('rope.dimension_count')} is {rotary}, the head size {head_dim}",
            "config.json holds their ratio, which does not give this number back",
        )
    return rotary


def _vocab(file: GgufFile) -> int:
    embedding = file.tensors.get("token_embd.weight")
    if embedding is None:
        raise file.fault("holds no tensor token_embd.weight")
    return embedding.shape[0]
