"""A matrix multiplies alike however it is held."""

import pytest
import torch
from torch import Tensor

from llmcli.model import linear
from llmcli.model.linear import Linear
from llmcli.model.packed import Packed, pack_int4, pack_int8

SHAPES = [(7, 5), (64, 48), (33, 32), (3, 1), (1, 100)]


def _made(shape: tuple[int, int], *, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def _packed(kind: str, weight: Tensor) -> Packed:
    return pack_int8(weight) if kind == "int8" else pack_int4(weight, int(kind))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", ["int8", "2", "32", "64"])
@pytest.mark.parametrize("block", [1, 2 << 20])
def test_packed_products_are_those_of_the_unpacked_matrix(
    shape: tuple[int, int], kind: str, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linear, "_BLOCK", block)
    packed = _packed(kind, _made(shape))
    held = Linear(shape[1], shape[0], bias=True)
    assert held.bias is not None
    held.bias.copy_(_made((1, shape[0]), seed=1)[0])
    held.hold(packed)
    x = _made((3, shape[1]), seed=2)
    torch.testing.assert_close(held(x), x @ packed.unpacked().T + held.bias)
    assert held.shape == shape
    torch.testing.assert_close(
        held.rows(torch.tensor([[0, shape[0] - 1]]))[0, 1], held.matrix()[-1]
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_narrow_weights_multiply_exactly_as_their_float32_values(dtype: torch.dtype) -> None:
    held, wide = Linear(48, 64, bias=False), Linear(48, 64, bias=False)
    held.weight = torch.nn.Parameter(_made((64, 48)).to(dtype), requires_grad=False)
    wide.weight = torch.nn.Parameter(held.weight.to(torch.float32), requires_grad=False)
    x = _made((5, 48))
    torch.testing.assert_close(held(x), wide(x), rtol=0, atol=1e-6)


@pytest.mark.parametrize("shape", SHAPES)
def test_int8_is_off_by_half_a_step_at_most(shape: tuple[int, int]) -> None:
    weight = _made(shape)
    packed = pack_int8(weight)
    assert ((packed.unpacked() - weight).abs() <= packed.scale * 0.5001).all()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("group", [2, 32, 64])
def test_int4_is_off_by_little_more_than_half_a_step(shape: tuple[int, int], group: int) -> None:
    weight = _made(shape)
    packed = pack_int4(weight, group)
    step = packed.scale.float().repeat_interleave(group, 1)[:, : shape[1]]
    # The minimum and the scale are rounded to float16, which the codes cannot quite undo.
    assert ((packed.unpacked() - weight).abs() <= step * 0.5 + 4e-3).all()


@pytest.mark.parametrize("kind", ["int8", "32"])
def test_rows_of_zeros_stay_zero(kind: str) -> None:
    weight = _made((4, 64))
    weight[2] = 0
    assert (_packed(kind, weight).unpacked()[2] == 0).all()


@pytest.mark.parametrize("kind", ["int8", "32"])
def test_packing_what_was_packed_changes_nothing(kind: str) -> None:
    once = _packed(kind, _made((16, 64))).unpacked()
    torch.testing.assert_close(_packed(kind, once).unpacked(), once, rtol=0, atol=2e-3)
