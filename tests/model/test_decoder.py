"""The decoder against its own table of parameters, and the parts that parity sees only whole."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from llmcli.cache import make_cache
from llmcli.model import Decoder
from llmcli.model.attention import Visibility, attend
from llmcli.model.masks import causal_mask
from llmcli.model.norm import RMSNorm
from llmcli.model.rope import RotaryTable, inverse_frequencies, rotate
from llmcli.spec import (
    DecoderSpec,
    LayerSpec,
    Learned,
    LinearScaling,
    Llama3Scaling,
    Rope,
    count_parameters,
    kv_bytes_per_token,
    parameter_shapes,
)
from tests.tiny import random_decoder, tiny_spec

SPECS: dict[str, DecoderSpec] = {
    "tiny": tiny_spec(),
    "tied": tiny_spec(tie_word_embeddings=True),
    "biases": tiny_spec(attention_bias=True, mlp_bias=True),
    "learned": replace(
        tiny_spec(),
        layers=(LayerSpec(),) * 3,
        positions=Learned(offset=2),
        norm="layer",
        mlp="plain",
        attn_bias=True,
    ),
}


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_parameters_are_those_of_the_table(spec: DecoderSpec) -> None:
    with torch.device("meta"):
        decoder = Decoder(spec)
    found = {name: tuple(one.shape) for name, one in decoder.named_parameters()}
    assert found == parameter_shapes(spec)
    assert sum(one.numel() for one in decoder.parameters()) == count_parameters(spec)
    assert not any(one.requires_grad for one in decoder.parameters())


def test_cache_bytes_are_those_of_the_table() -> None:
    decoder = random_decoder(dtype=torch.bfloat16)
    cache = make_cache("growing", decoder.spec)
    assert cache is not None
    with torch.inference_mode():
        decoder(torch.tensor([[1, 2, 3]]), cache)
    assert cache.nbytes == cache.capacity * kv_bytes_per_token(decoder.spec, 2)


@torch.inference_mode()
def test_last_only() -> None:
    decoder = random_decoder()
    ids = torch.tensor([[1, 2, 3], [4, 5, 6]])
    every, last = decoder(ids, last_only=False), decoder(ids)
    assert every.shape == (2, 3, 320)
    assert last.shape == (2, 1, 320)
    assert torch.allclose(every[:, -1:], last, atol=1e-9)


@torch.inference_mode()
def test_later_ids_never_reach_earlier_logits() -> None:
    decoder = random_decoder()
    ids = torch.arange(20)[None]
    other = ids.clone()
    other[0, 12:] += 100
    one, two = decoder(ids, last_only=False)[0], decoder(other, last_only=False)[0]
    assert torch.equal(one[:12], two[:12])
    assert (one[12:] - two[12:]).abs().amax(-1).min() > 0.01


# attention


def _plain(q: Tensor, k: Tensor, v: Tensor, seen: Tensor, scale: float) -> Tensor:
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = (scale * q @ k.transpose(-1, -2)).masked_fill(~seen, float("-inf"))
    return scores.softmax(-1) @ v


@pytest.mark.parametrize("heads", [(4, 4), (4, 2), (4, 1), (6, 3)])
@pytest.mark.parametrize(("new", "keys"), [(1, 9), (5, 5), (3, 9)])
def test_attend(heads: tuple[int, int], new: int, keys: int) -> None:
    generator = torch.Generator().manual_seed(0)
    q, k, v = (
        torch.randn(2, count, length, 8, generator=generator, dtype=torch.float64)
        for count, length in ((heads[0], new), (heads[1], keys), (heads[1], keys))
    )
    seen = causal_mask(torch.arange(keys - new, keys), torch.arange(keys))
    expected = _plain(q, k, v, seen, 0.7)
    assert torch.allclose(attend(q, k, v, Visibility(mask=seen), 0.7), expected, atol=1e-9)
    if new == keys:
        causal = attend(q, k, v, Visibility(is_causal=True), 0.7)
        assert torch.allclose(causal, expected, atol=1e-9)
    if new == 1:
        assert torch.allclose(attend(q, k, v, Visibility(), 0.7), expected, atol=1e-9)


def test_causal_mask() -> None:
    mask = causal_mask(torch.tensor([3, 4]), torch.arange(6))
    assert mask.long().tolist() == [[1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 0]]


# rotary tables


@pytest.mark.parametrize("theta", [10_000.0, 500_000.0])
def test_frequencies_of_llama_3(theta: float) -> None:
    """The published settings of Llama 3.1 and 3.2, which tiny rows only resemble."""
    for factor in (8.0, 32.0):
        parameters = {
            "rope_type": "llama3",
            "rope_theta": theta,
            "factor": factor,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        }
        config = LlamaConfig(
            hidden_size=256,
            num_attention_heads=2,
            max_position_embeddings=131072,
            rope_parameters=parameters,
        )
        theirs, attention_factor = ROPE_INIT_FUNCTIONS["llama3"](config, torch.device("cpu"))
        scaling = Llama3Scaling(
            factor=factor, low_freq_factor=1.0, high_freq_factor=4.0, original_max_positions=8192
        )
        ours = inverse_frequencies(Rope(theta=theta, dim=128, scaling=scaling))
        assert attention_factor == 1.0
        assert torch.allclose(ours, theirs, rtol=1e-6, atol=0)


def test_linear_scaling_divides_every_frequency() -> None:
    plain = inverse_frequencies(Rope(theta=10_000.0, dim=16))
    scaled = inverse_frequencies(Rope(theta=10_000.0, dim=16, scaling=LinearScaling(4.0)))
    assert torch.equal(scaled * 4, plain)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_tables_are_built_wide_and_cast_last(dtype: torch.dtype) -> None:
    """bfloat16 cannot hold 257, so positions or angles in it would be far off."""
    positions = torch.tensor([0, 255, 256, 257, 1001, 4095])
    narrow = RotaryTable(Rope(theta=10_000.0, dim=16)).at(positions, 4096, dtype)
    wide = RotaryTable(Rope(theta=10_000.0, dim=16)).at(positions, 4096, torch.float32)
    angles = positions.double()[:, None] * 10_000.0 ** -(torch.arange(0, 16, 2).double() / 16)
    assert torch.allclose(wide[0][:, :8].double(), angles.cos(), atol=1e-3)
    for one, other in zip(narrow, wide, strict=True):
        assert torch.equal(one, other.to(dtype))


def test_tables_grow_without_changing() -> None:
    rope = Rope(theta=10_000.0, dim=16)
    grown, positions = RotaryTable(rope), torch.arange(40)
    before = grown.at(positions, 40, torch.float32)
    for stop in (512, 513, 1024, 5000):
        last = torch.tensor([stop - 1])
        fresh = RotaryTable(rope).at(last, stop, torch.float32)
        for one, other in zip(grown.at(last, stop, torch.float32), fresh, strict=True):
            assert torch.equal(one, other)
    for one, other in zip(grown.at(positions, 40, torch.float32), before, strict=True):
        assert torch.equal(one, other)


def test_rotation_keeps_lengths_and_depends_on_distance_alone() -> None:
    table = RotaryTable(Rope(theta=100.0, dim=16))
    generator = torch.Generator().manual_seed(0)
    q, k = torch.randn(2, 1, 1, 1, 16, generator=generator)

    def turned(x: Tensor, position: int) -> Tensor:
        return rotate(x, *table.at(torch.tensor([position]), position + 1, torch.float32))

    assert torch.allclose(turned(q, 77).norm(), q.norm(), atol=1e-5)
    near = (turned(q, 10) * turned(k, 7)).sum()
    far = (turned(q, 310) * turned(k, 307)).sum()
    other = (turned(q, 10) * turned(k, 6)).sum()
    assert torch.allclose(near, far, atol=1e-4)
    assert not torch.allclose(near, other, atol=1e-2)


# norms


def test_rms_norm_takes_its_statistics_wide() -> None:
    """The squares of 300 overflow float16; the norm of such a row does not."""
    norm = RMSNorm(8, 1e-5)
    norm.weight.data = torch.ones(8, dtype=torch.float16)
    got = norm(torch.full((1, 8), 300.0, dtype=torch.float16))
    assert torch.allclose(got, torch.ones(1, 8, dtype=torch.float16), atol=1e-3)


def test_rms_norm_in_bfloat16_rounds_as_llama_does() -> None:
    """Cast back first, then multiplied by the weight: to the bit as in transformers."""
    from transformers.models.llama.modeling_llama import LlamaRMSNorm

    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(64, generator=generator).bfloat16()
    x = torch.randn(50, 64, generator=generator).bfloat16() * 3
    ours, theirs = RMSNorm(64, 1e-5), LlamaRMSNorm(64, 1e-5)
    ours.weight.data, theirs.weight.data = weight, weight
    assert torch.equal(ours(x), theirs(x))
