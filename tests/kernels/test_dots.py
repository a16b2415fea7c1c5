"""Products in kernels against torch's, for every way in which a matrix is held."""

import pytest
import torch
from torch import Tensor, nn

from llmcli.kernels.team import Team
from llmcli.model import product
from llmcli.model.linear import Linear
from llmcli.model.packed import Int8, pack_int4, pack_int8
from llmcli.model.product import Product

KINDS = [
    "float32",
    "float16",
    "bfloat16",
    "int8",
    "int8 in 8",
    "int8 in 16",
    "int8 in 24",
    "int8 in 32",
    "int4",
    "int4 in 16",
    "int4 in 64",
]
# Widths that no vector and no group divides, single rows and columns, and more rows than fit.
SHAPES = [(1, 1), (7, 5), (24, 96), (33, 100), (130, 64), (21, 1600)]
# One, what tiles of three and two make up, and more than are kept in a core's cache at a time.
COUNTS = [1, 2, 3, 4, 7, 53]


def made(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def grouped_int8(weight: Tensor, group: int) -> Int8:
    parts = [pack_int8(part) for part in weight.split(group, 1)]
    return Int8(torch.cat([one.codes for one in parts], 1), torch.cat([p.scale for p in parts], 1))


def held(kind: str, shape: tuple[int, int], *, bias: bool = True) -> Linear:
    rows, columns = shape
    linear = Linear(columns, rows, bias=bias)
    if linear.bias is not None:
        linear.bias.copy_(made(rows, seed=1))
    weight = made(rows, columns)
    match kind:
        case "int8":
            linear.hold(pack_int8(weight))
        case "int8 in 8" | "int8 in 16" | "int8 in 24" | "int8 in 32":
            linear.hold(grouped_int8(weight, int(kind.split()[-1])))
        case "int4":
            linear.hold(pack_int4(weight))
        case "int4 in 16":
            linear.hold(pack_int4(weight, 16))
        case "int4 in 64":
            linear.hold(pack_int4(weight, 64))
        case _:
            linear.weight = nn.Parameter(weight.to(getattr(torch, kind)), requires_grad=False)
    return linear


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("count", COUNTS)
def test_products(kind: str, shape: tuple[int, int], count: int, team: Team) -> None:
    linear = held(kind, shape)
    group = int(kind.split()[-1]) if kind.startswith("int8 in") else 0
    if group and shape[1] > group and shape[1] % group:
        return  # groups are of one size
    x = made(count, 1, shape[1], seed=2)
    expected = linear(x)
    got = Product(team).times(linear, x, linear.bias)
    assert got is not None
    # Sums in another order, whose rounding grows with what is summed.
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=2e-6 * shape[1] ** 0.5 + 1e-5)


def test_more_rows_than_kernels_are_for_are_left_to_torch(
    team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(product, "MOST_ROWS", 64)
    linear = held("float32", (8, 8))
    assert Product(team).times(linear, made(64, 8), linear.bias) is not None
    assert Product(team).times(linear, made(65, 8), linear.bias) is None


@pytest.mark.parametrize("kind", ["float32", "int4"])
def test_one_product_after_a_wider_one(kind: str, team: Team) -> None:
    products = Product(team)
    for shape in ((40, 100), (9, 33), (40, 100)):
        linear, x = held(kind, shape, bias=False), made(1, shape[1], seed=3)
        got = products.times(linear, x, None)
        assert got is not None
        torch.testing.assert_close(got, linear(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_stays_so(dtype: torch.dtype, bad: float, team: Team) -> None:
    linear = Linear(40, 3, bias=False)
    weight = made(3, 40)
    weight[1, 7] = bad
    linear.weight = nn.Parameter(weight.to(dtype), requires_grad=False)
    got = Product(team).times(linear, torch.ones(1, 40), None)
    assert got is not None
    assert got.isfinite().tolist() == [[True, False, True]]
