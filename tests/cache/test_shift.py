"""Shifting: keys that moved equal a plain loop that turns unturned keys anew at every step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache as once
from typing import Any

import pytest
import torch
from torch import Tensor

from llmcli.cache import CacheKind, KVCache, RingStore, make_cache
from llmcli.generation.limit import SINKS, Limit
from llmcli.generation.stepper import Stepper
from llmcli.model import Decoder
from llmcli.model.masks import alibi_slopes
from llmcli.model.rope import attention_factor, inverse_frequencies
from llmcli.spec import Alibi, DecoderSpec, LayerSpec, LinearScaling, Rope, YarnScaling
from tests.cache.poison import POISONERS
from tests.tiny import random_decoder, tiny_spec

SIZE, TOKENS, EXACT = 24, 44, 1e-9
LIMIT = Limit(SIZE)
YARN = YarnScaling(factor=4.0, original_max_positions=32, attention_factor=1.14)


def _layers(*layers: LayerSpec) -> DecoderSpec:
    return replace(tiny_spec(), layers=layers)


def _rope(dim: int = 16, **facts: Any) -> Rope:
    return Rope(theta=10000.0, dim=dim, **facts)


SPECS = {
    "rotary": tiny_spec(),
    "partial, interleaved": _layers(*[LayerSpec(_rope(8, interleaved=True))] * 2),
    "yarn": _layers(*[LayerSpec(_rope(scaling=YARN))] * 2),
    "two tables": _layers(LayerSpec(_rope(scaling=LinearScaling(8.0))), LayerSpec(_rope(4))),
    "some without": _layers(LayerSpec(_rope()), LayerSpec()),
    "alibi": replace(_layers(LayerSpec(), LayerSpec()), positions=Alibi()),
    "window": _layers(LayerSpec(_rope(), window=7), LayerSpec(_rope())),
    "wide window": _layers(LayerSpec(_rope()), LayerSpec(_rope(), window=30)),
}


@dataclass
class Loop:
    """StreamingLLM token by token: a list of unturned keys a layer, positions are list indices."""

    decoder: Decoder
    gone: list[tuple[int, int]] = field(default_factory=lambda: [(SINKS, LIMIT.at_once)] * 9)
    held: list[list[tuple[Tensor, Tensor]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.held = [[] for _ in self.decoder.layers]

    def step(self, token: int) -> Tensor:
        if len(self.held[0]) == SIZE:
            first, count = self.gone.pop(0)
            for held in self.held:
                del held[first : first + count]
        x = self.decoder.embed_tokens(torch.tensor([[token]]))
        for block, kind, held in zip(
            self.decoder.layers, self.decoder.spec.layers, self.held, strict=True
        ):
            q, k, v = block.attn.project(block.attn_norm(x))
            held.append((k[0, :, 0], v[0, :, 0]))  # [K,D]
            mixed = self._attend(q[0, :, 0], held, kind)
            x = x + block.attn.output(x, mixed.reshape(1, 1, -1))
            x = x + block.mlp(block.mlp_norm(x))
        return self.decoder.unembed(x)[0, 0]

    def _attend(self, q: Tensor, held: list[tuple[Tensor, Tensor]], kind: LayerSpec) -> Tensor:
        spec, here = self.decoder.spec, len(held) - 1
        seen = [at for at in range(len(held)) if kind.window is None or here - at < kind.window]
        keys = _turned(torch.stack([held[at][0] for at in seen], 1), seen, kind.rope)  # [K,S,D]
        values = torch.stack([held[at][1] for at in seen], 1)
        query = _turned(q[:, None], [here], kind.rope)[:, 0]
        rows = []
        for head in range(spec.num_heads):
            group = head // spec.group_size
            scores = keys[group] @ query[head] * spec.attn_scale
            if isinstance(spec.positions, Alibi):
                scores = scores + alibi_slopes(spec.num_heads)[head] * torch.tensor(seen)
            rows.append(scores.softmax(-1) @ values[group])
        return torch.stack(rows)


def _turned(x: Tensor, positions: list[int], rope: Rope | None) -> Tensor:
    """x [H,n,D] at n positions."""
    if rope is None:
        return x
    angles = torch.tensor(positions, dtype=torch.float32)[:, None] * inverse_frequencies(rope)
    factor = attention_factor(rope)
    cos, sin = (angles.cos() * factor).double(), (angles.sin() * factor).double()
    part = x[..., : rope.dim]
    a, b = (part[..., ::2], part[..., 1::2]) if rope.interleaved else part.chunk(2, -1)
    turned = (a * cos - b * sin, a * sin + b * cos)
    both = torch.stack(turned, -1).flatten(-2) if rope.interleaved else torch.cat(turned, -1)
    return torch.cat((both, x[..., rope.dim :]), -1)


@once
def _expected(spec: str) -> tuple[Decoder, list[Tensor]]:
    """The decoder, and the loop's logits after every id."""
    loop = Loop(random_decoder(SPECS[spec]))
    with torch.inference_mode():
        return loop.decoder, [loop.step(token) for token in _ids(TOKENS)]


def _ids(count: int) -> list[int]:
    return torch.randint(320, (count,), generator=torch.Generator().manual_seed(3)).tolist()


def _stepper(decoder: Decoder, kind: CacheKind, limit: Limit = LIMIT) -> tuple[Stepper, KVCache]:
    cache = make_cache(kind, decoder.spec, planned=SIZE)
    assert cache is not None
    return Stepper(decoder, cache, limit=limit), cache


@pytest.mark.parametrize("kind", ["growing", "ring", "static", "offloaded"])
@pytest.mark.parametrize("spec", SPECS)
@torch.inference_mode()
def test_logits_equal_the_plain_loop(spec: str, kind: CacheKind) -> None:
    """With 1e4 in every slot that must not count, over more than three drops."""
    decoder, expected = _expected(spec)
    stepper, cache = _stepper(decoder, kind)
    ids = _ids(TOKENS)
    prompt = 9
    logits = stepper.feed(torch.tensor([ids[:prompt]]))[0]
    assert (logits - expected[prompt - 1]).abs().max() <= EXACT
    for token, right in zip(ids[prompt:], expected[prompt:], strict=True):
        POISONERS[kind](cache)
        logits = stepper.feed(torch.tensor([[token]]))[0]
        assert (logits - right).abs().max() <= EXACT
    assert cache.dropped == 4 * LIMIT.at_once
    assert cache.seen == len(ids) == stepper.ids.shape[1]


@pytest.mark.parametrize("kind", ["growing", "ring", "static", "offloaded"])
@pytest.mark.parametrize("spec", ["rotary", "window", "alibi"])
@torch.inference_mode()
def test_parts_go_whole_and_then_what_follows_the_body(spec: str, kind: CacheKind) -> None:
    limit = Limit(SIZE, head=5, parts=(3, 7), body=6)
    gone = [(5, 3), (5, 7), *[(11, 3)] * 4]
    loop = Loop(random_decoder(SPECS[spec]), gone=[*gone])
    stepper, cache = _stepper(loop.decoder, kind, limit)
    for at, token in enumerate(_ids(TOKENS)):
        expected = loop.step(token)
        logits = stepper.feed(torch.tensor([[token]]))[0]
        assert (logits - expected).abs().max() <= EXACT, at
    assert not loop.gone
    assert cache.dropped == sum(count for _, count in gone)


def test_without_the_turn_the_logits_are_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the equality above says something."""
    decoder = random_decoder(SPECS["rotary"])
    ids = torch.tensor([_ids(SIZE)])

    def last() -> Tensor:
        stepper, _ = _stepper(decoder, "growing")
        stepper.feed(ids)
        return stepper.feed(torch.tensor([[7]]))

    right = last()
    monkeypatch.setattr(Decoder, "_turn", lambda *_: lambda keys, _start: keys.clone())
    assert (last() - right).abs().max() > 1e-3


@pytest.mark.parametrize("kind", ["growing", "ring", "static"])
def test_memory_stays_flat(kind: CacheKind) -> None:
    decoder = random_decoder(SPECS["window"])
    stepper, cache = _stepper(decoder, kind)
    stepper.feed(torch.tensor([_ids(SIZE)]))
    size = cache.nbytes
    for token in _ids(60):
        stepper.feed(torch.tensor([[token]]))
        assert cache.nbytes == size
        assert cache.length <= SIZE


def test_a_drop_that_was_cut_short_is_not_trusted() -> None:
    decoder = random_decoder(SPECS["rotary"])
    stepper, cache = _stepper(decoder, "growing")
    stepper.feed(torch.tensor([_ids(SIZE)]))

    def interrupted(*_: Any) -> Tensor:
        raise KeyboardInterrupt

    def copied(keys: Tensor, _start: int) -> Tensor:
        return keys.clone()

    turns: list[Callable[[Tensor, int], Tensor]] = [copied, interrupted]
    with pytest.raises(KeyboardInterrupt), torch.inference_mode():
        cache.drop(SINKS, 5, turns)
    assert not cache.trusted
    assert not cache.fork().trusted
    cache.clear()
    assert cache.trusted


def test_what_was_dropped_cannot_be_rewound_over() -> None:
    decoder = random_decoder(SPECS["rotary"])
    stepper, cache = _stepper(decoder, "growing")
    stepper.feed(torch.tensor([_ids(SIZE)]))
    stepper.feed(torch.tensor([[5]]))
    assert cache.can_rewind(0)
    assert not cache.can_rewind(1)
    cache.rewind(cache.length)
    assert (cache.length, cache.dropped) == (0, 0)


def test_a_window_that_reaches_what_goes_is_refused_by_the_ring() -> None:
    ring = RingStore(8)
    keys = torch.zeros(1, 1, 20, 4)
    ring.update(0, keys, keys)
    with pytest.raises(AssertionError):
        ring.drop(20, 4, 9, lambda keys, _start: keys.clone())
