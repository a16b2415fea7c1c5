"""Positions: wavelengths by their formula, and a check of distance that can fail."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from llmcli.insight import positions as module
from llmcli.insight.positions import measure_positions
from llmcli.model.rope import RotaryTable
from llmcli.spec import Alibi, Learned, Llama3Scaling, Rope, Sinusoidal
from tests.insight.decoders import ALL, decoder_of, spec_of
from tests.oracle import Row
from tests.tiny import tiny_spec


@pytest.mark.parametrize("row", ALL, ids=lambda row: row.name)
def test_every_family(row: Row) -> None:
    spec = spec_of(row)
    learned = None
    if isinstance(spec.positions, Learned):
        table = decoder_of(row).embed_positions
        assert table is not None
        learned = table.weight[spec.positions.offset :]
    found = measure_positions(spec, context=spec.context, learned=learned)
    told = {layer for one in found.rotary for layer in one.layers}
    assert told == {at for at, layer in enumerate(spec.layers) if layer.rope is not None}
    for one in found.rotary:
        assert one.deviation < 1e-4
        assert one.never == sum(pair.wavelength > spec.context for pair in one.pairs)
        rope = spec.layers[one.layers[0]].rope
        assert rope is not None
        assert len(one.pairs) == rope.dim // 2
        for pair in one.pairs:
            expected = 2 * math.pi * rope.theta ** (2 * pair.index / rope.dim)
            assert pair.trained == pytest.approx(expected, rel=1e-5)
            if rope.scaling is None:
                assert pair.wavelength == pair.trained
    added = isinstance(spec.positions, Learned | Sinusoidal)
    assert (found.table is not None) == added
    if found.table is not None:
        assert found.table.deviation > 0.1
    assert (found.slopes is not None) == isinstance(spec.positions, Alibi)
    if found.slopes is not None:
        assert len(found.slopes.slopes) == spec.num_heads


def test_scaling_slows_long_waves_alone() -> None:
    scaling = Llama3Scaling(
        factor=8, low_freq_factor=1, high_freq_factor=4, original_max_positions=64
    )
    rope = Rope(theta=10000.0, dim=16, scaling=scaling)
    spec = tiny_spec()
    layers = tuple(type(layer)(rope=rope) for layer in spec.layers)
    (found,) = measure_positions(replace(spec, layers=layers), context=128).rotary
    ratios = [pair.wavelength / pair.trained for pair in found.pairs]
    assert found.scaling == "llama3"
    assert ratios[0] == pytest.approx(1)
    assert ratios[-1] == pytest.approx(8)
    assert ratios == sorted(ratios)


def test_a_table_that_is_no_rotation_is_found_out(monkeypatch) -> None:
    whole = RotaryTable.at

    def bent(self: RotaryTable, positions: torch.Tensor, *args: object) -> object:
        cos, sin = whole(self, positions, *args)  # type: ignore[arg-type]
        return cos * (1 + positions[:, None] / 100), sin

    assert measure_positions(tiny_spec(), context=64).rotary[0].deviation < 1e-5
    monkeypatch.setattr(module.RotaryTable, "at", bent)
    assert measure_positions(tiny_spec(), context=64).rotary[0].deviation > 1e-2


def test_rounded_slopes_hold_only_roughly() -> None:
    spec = tiny_spec()
    plain = replace(spec, positions=Alibi(), layers=tuple(type(one)() for one in spec.layers))
    rounded = replace(plain, positions=Alibi(rounded=True))
    exact, rough = (measure_positions(one, context=2048).slopes for one in (plain, rounded))
    assert exact is not None
    assert rough is not None
    assert exact.slopes == (0.25, 0.0625, 0.015625, 0.00390625)
    assert exact.deviation == 0
    assert rough.deviation > 0.1


def test_likeness_is_that_of_rows() -> None:
    rows = torch.eye(8, dtype=torch.float64).repeat(2, 1)  # a row comes back after 8
    found = module._table(rows)
    assert found.lengths == (1, 1, 1)
    assert {one.distance: one.mean for one in found.likeness} == {1: 0, 2: 0, 4: 0, 8: 1}
