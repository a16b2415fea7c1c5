"""The model of work against torch's own count of every row's forward, and against known sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import Module
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from llmcli.cache import CacheKind, KVCache, make_cache
from llmcli.model import Decoder
from llmcli.model.linear import Linear
from llmcli.model.packed import pack_int8
from llmcli.spec import count_parameters, kv_bytes_per_token
from llmcli.spec.work import forward_work, total
from tests.families.turns import in_turns
from tests.insight.decoders import ALL, decoder_of, ids_for
from tests.oracle import Row
from tests.tiny import random_decoder, tiny_spec

# Beyond every window of the rows.
HELD = 20


class _Counter(TorchDispatchMode):
    """torch's formulas for its operations, without FlopCounterMode's search through all others."""

    def __init__(self) -> None:
        super().__init__()
        self.flops = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        formula: Callable[..., int] | None = flop_registry.get(func.overloadpacket)
        if formula is not None:
            self.flops += formula(*args, **(kwargs or {}), out_val=out)
        return out


# In inference mode a matmul would come undivided, and none of the formulas is of it.
@torch.no_grad()
def _counted(decoder: Decoder, count: int, cache: KVCache | None, piece: int | None = None) -> int:
    # torch counts nothing of the CPU's fused kernel, and all of the steps that it stands for.
    with sdpa_kernel(SDPBackend.MATH), _Counter() as counter:
        decoder(ids_for(decoder.spec, count), cache, piece=piece)
    return counter.flops


@in_turns("kind", ("none", "growing"), standing=("none", "growing"))
def test_torch_counts_the_same_for_a_prefill(row: Row, kind: CacheKind) -> None:
    decoder = decoder_of(row)
    cache = make_cache(kind, decoder.spec)
    ours = forward_work(decoder.spec, new=HELD, cached=cache is not None)
    assert total(ours)[0] == pytest.approx(_counted(decoder, HELD, cache), rel=0.01)


@in_turns("piece", (6, 9), standing=(6, 9))
def test_torch_counts_the_same_in_pieces_without_a_cache(row: Row, piece: int) -> None:
    _assert_counted_in_pieces(decoder_of(row), piece)


# Windows, a state of their own, latent keys.
@pytest.mark.parametrize("name", ["mistral-window", "qwen3_next-plain", "deepseek_v2-plain"])
def test_torch_counts_the_same_in_pieces_of_one(name: str) -> None:
    (row,) = (row for row in ALL if row.name == name)
    _assert_counted_in_pieces(decoder_of(row), 1, within=1e-4)


def _assert_counted_in_pieces(decoder: Decoder, piece: int, *, within: float = 0.01) -> None:
    ours = forward_work(decoder.spec, new=HELD, cached=False, piece=piece)
    counted = _counted(decoder, HELD, None, piece)
    assert total(ours)[0] == pytest.approx(counted, rel=within)


@torch.inference_mode()
def _read(decoder: Decoder, count: int, piece: int | None) -> int:
    """Bytes of the layers' parameters, each as often as the module that owns it runs."""
    read = [0]

    def reads(module: Module, _given: object, _made: object) -> None:
        read[0] += sum(own.nbytes for own in module.parameters(recurse=False))

    hooks = [module.register_forward_hook(reads) for module in decoder.layers.modules()]
    try:
        decoder(ids_for(decoder.spec, count), None, piece=piece)
    finally:
        for hook in hooks:
            hook.remove()
    return read[0]


@in_turns("piece", (None, 6, 9), standing=(None, 9))
def test_every_piece_reads_the_weights_of_each_layer(row: Row, piece: int | None) -> None:
    decoder = decoder_of(row)
    works = forward_work(decoder.spec, new=HELD, cached=False, piece=piece, element_bytes=8)
    told = sum(one.weight_bytes for one in works if one.part not in ("embedding", "head"))
    read = _read(decoder, HELD, piece)
    if decoder.spec.experts is None:
        assert told == read
    else:
        # Which experts tokens choose is the weights' to say; the model tells how many they could.
        assert read <= told <= read * 2


@pytest.mark.parametrize("row", ALL, ids=lambda row: row.name)
def test_torch_counts_the_same_for_a_step(row: Row) -> None:
    decoder = decoder_of(row)
    cache = make_cache("growing", decoder.spec)
    with torch.no_grad():
        decoder(ids_for(decoder.spec, HELD), cache)
    ours = forward_work(decoder.spec, new=1, held=HELD)
    assert total(ours)[0] == pytest.approx(_counted(decoder, 1, cache), rel=0.01)


def test_a_step_reads_each_weight_once_and_every_key() -> None:
    spec = tiny_spec()
    flops, moved = total(forward_work(spec, new=1, held=9, element_bytes=4))
    unread = spec.vocab_size * spec.hidden_size - spec.hidden_size  # all rows but one
    assert moved == 4 * (count_parameters(spec) - unread) + 10 * kv_bytes_per_token(spec, 4)
    # Two FLOPs a weight, and two products of 10 keys with each of 4 heads of 16 in 2 layers.
    norms = 5 * spec.hidden_size
    matrices = count_parameters(spec) - spec.vocab_size * spec.hidden_size - norms
    assert flops == 2 * matrices + 2 * (2 * 10 * 4 * 16 * 2)


def test_narrow_and_packed_matrices_are_read_as_they_are_held() -> None:
    decoder = random_decoder(dtype=torch.float32)
    layer = decoder.layers[0]
    narrow, packed = layer.get_submodule("mlp.up_proj"), layer.get_submodule("attn.q_proj")
    assert isinstance(narrow, Linear)
    assert isinstance(packed, Linear)
    narrow.weight = torch.nn.Parameter(narrow.matrix().bfloat16(), requires_grad=False)
    numbers = packed.matrix().numel()
    packed.hold(pack_int8(packed.matrix()))
    held_in = decoder.bytes_a_number()
    assert held_in["layers.0.mlp.up_proj.weight"] == 2
    assert held_in["layers.1.mlp.up_proj.weight"] == 4
    assert held_in["embed_tokens.weight"] == 4
    plain = total(forward_work(decoder.spec, new=1, element_bytes=4))[1]
    told = total(forward_work(decoder.spec, new=1, element_bytes=4, held_in=held_in))[1]
    spared = 2 * narrow.matrix().numel() + 4 * numbers - packed.nbytes
    assert plain - told == spared


def test_a_window_bounds_what_is_read() -> None:
    spec = tiny_spec(model_type="mistral", sliding_window=8)
    far, near = (forward_work(spec, new=1, held=held) for held in (1000, 7))
    assert far == near
    assert forward_work(spec, new=1, held=6) != near


def test_without_a_cache_nothing_is_kept() -> None:
    works = forward_work(tiny_spec(), new=5, cached=False)
    assert not any(one.cache_read or one.cache_written for one in works)
