"""A matrix multiplies alike however it is held."""

import pytest
import torch
from torch import Tensor

from llmcli.model import linear, packed
from llmcli.model.linear import Linear
from llmcli.model.packed import Packed, pack, pack_int4, pack_int8
from llmcli.spec import PackingKind, packed_bytes, packed_parts

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
    held_as = _packed(kind, _made(shape))
    held = Linear(shape[1], shape[0], bias=True)
    assert held.bias is not None
    held.bias.copy_(_made((1, shape[0]), seed=1)[0])
    held.hold(held_as)
    x = _made((3, shape[1]), seed=2)
    torch.testing.assert_close(held(x), x @ held_as.unpacked().T + held.bias)
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
def test_int8_is_off_by_less_than_a_step(shape: tuple[int, int]) -> None:
    """More than a half where the line of least squares moves the scale under codes that stay."""
    weight = _made(shape)
    made = pack_int8(weight)
    assert ((made.unpacked() - weight).abs() <= made.scale).all()
    assert (made.codes.abs().amax(1) >= 120).all()


@pytest.mark.parametrize("kind", ["int8", "32"])
@pytest.mark.parametrize("size", [1e-42, 1e-30, 1e4, 1e36])
def test_numbers_of_any_size_are_packed_alike(kind: str, size: float) -> None:
    """As far as they can be told from 0, and a float16 has room for a minimum."""
    weight, other = _made((4, 64)), _made((4, 64)) * size
    made = _packed(kind, other).unpacked()
    if kind == "int8" and size > 1e-35:
        torch.testing.assert_close(made / size, _packed(kind, weight).unpacked(), rtol=1e-5, atol=0)
    elif size < 1e-9:
        assert (made.abs() <= 6e-8).all()
    else:
        assert made.isfinite().all() == (size < 1e5)


@pytest.mark.parametrize("value", [0.0, 0.25, -3.0, 60000.0])
@pytest.mark.parametrize("kind", ["int8", "32"])
def test_groups_of_one_number_alone_are_exact(kind: str, value: float) -> None:
    weight = torch.full((3, 64), value)
    torch.testing.assert_close(_packed(kind, weight).unpacked(), weight, rtol=1e-6, atol=0)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("group", [2, 32, 64])
def test_int4_is_off_by_no_more_than_codes_over_the_whole_range(
    shape: tuple[int, int], group: int
) -> None:
    """In the square; single numbers may be cut for the good of their group."""
    weight = _made(shape)
    off = _groups(pack_int4(weight, group).unpacked() - weight, group)
    filled = _groups(weight, group, fill="nan").nan_to_num(torch.nan)
    low, high = filled.nan_to_num(torch.inf).amin(-1), filled.nan_to_num(-torch.inf).amax(-1)
    half = ((high - low) / 15)[..., None] / 2 + 4e-3  # what float16 rounds away besides
    bound = half.square().expand_as(off).where(~filled.isnan(), 0).sum(-1)
    assert (off.square().sum(-1) <= bound).all()
    assert (off != 0).any() or shape[1] <= 2 or group == 2


def _groups(matrix: Tensor, group: int, *, fill: str = "0") -> Tensor:
    over = -matrix.shape[1] % group
    return torch.nn.functional.pad(matrix, (0, over), value=float(fill)).unflatten(1, (-1, group))


def test_searched_scales_are_closer_than_those_of_the_range_alone() -> None:
    weight = _made((64, 512))
    low, high = (getattr(_groups(weight, 32), end)(-1, keepdim=True) for end in ("amin", "amax"))
    plain = ((_groups(weight, 32) - low) / (high - low) * 15).round() * (high - low) / 15 + low
    least = (plain.flatten(1) - weight).square().sum()
    assert (pack_int4(weight).unpacked() - weight).square().sum() < 0.86 * least
    largest = _groups(weight, 32).abs().amax(-1, keepdim=True) / 127
    plain = (_groups(weight, 32) / largest).round() * largest
    least = (plain.flatten(1) - weight).square().sum()
    assert (pack_int8(weight, 32).unpacked() - weight).square().sum() < 0.85 * least


@pytest.mark.parametrize("kind", ["int8", "int4"])
@pytest.mark.parametrize("width", [1, 5, 40, 48, 96])
def test_blocks_of_rows_are_packed_like_the_whole(
    kind: PackingKind, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    weight = _made((9, width))
    whole = pack(weight, kind)
    monkeypatch.setattr(packed, "_BLOCK", 2 * width)
    for name, part in pack(weight, kind).parts.items():
        assert torch.equal(part, whole.parts[name])
        assert packed_parts((9, width), kind)[name][1] == part.shape
    assert packed_bytes((9, width), kind) == whole.nbytes


@pytest.mark.parametrize("kind", ["int8", "32"])
def test_rows_of_zeros_stay_zero(kind: str) -> None:
    weight = _made((4, 64))
    weight[2] = 0
    assert (_packed(kind, weight).unpacked()[2] == 0).all()


@pytest.mark.parametrize("kind", ["int8", "32"])
def test_packing_what_was_packed_changes_nothing(kind: str) -> None:
    once = _packed(kind, _made((16, 64))).unpacked()
    torch.testing.assert_close(_packed(kind, once).unpacked(), once, rtol=0, atol=2e-3)
