"""The numbers of a report, from times that a fake device made."""

from __future__ import annotations

import pytest
import torch

from llmcli.bench.summary import crossovers, curves, summarise
from llmcli.bench.trial import Case
from llmcli.spec import count_parameters, kv_bytes_per_token
from tests.bench.fake import FakeDevice, on_device
from tests.bench.test_trial import DECODER, trial
from tests.tiny import random_decoder, tiny_spec

LONG = random_decoder(
    tiny_spec(max_position_embeddings=4096, num_hidden_layers=1), dtype=torch.float32
)


def cost(new: int, held: int) -> float:
    """A second, and a tenth for every token computed, a hundredth for every one kept."""
    return 1 + 0.1 * new + 0.01 * held


def test_rates_and_speedup() -> None:
    device = FakeDevice()
    with on_device(DECODER, device, cost):
        (case,) = trial(device=device, cases=(Case(20, 11, 2),))
    summary = summarise(case)
    off, on = (next(a for a in summary.arms if a.arm == name) for name in ("off", "on"))
    assert (summary.reference, off.speedup) == ("off", None)
    assert on.first_token.median == pytest.approx(3, rel=1e-4)
    assert on.prefill.median == pytest.approx(2 * 20 / 3, rel=1e-4)
    ten = sum(1.1 + 0.01 * held for held in range(20, 30))
    assert on.decode is not None
    assert on.decode.median == pytest.approx(2 * 10 / ten, rel=1e-4)
    assert on.latency is not None
    assert on.latency.p50 == pytest.approx(1.345, rel=1e-4)
    assert on.latency.p99 == pytest.approx(1.39, rel=1e-2)
    every = sum(1 + 0.1 * new for new in range(20, 31))
    assert on.speedup is not None
    assert on.speedup.value == pytest.approx(every / (3 + ten), rel=1e-3)
    assert on.warmup_total == pytest.approx(3 + ten, rel=1e-4)


def test_bytes_and_flops_against_the_clock() -> None:
    device = FakeDevice()
    with on_device(DECODER, device, cost):
        (case,) = trial(device=device, cases=(Case(20, 11, 1),))
    on = next(arm for arm in summarise(case).arms if arm.arm == "on")
    spec = DECODER.spec
    unread = (spec.vocab_size - 1) * spec.hidden_size
    assert on.weight_bytes == 4 * (count_parameters(spec) - unread)
    assert on.kv_bytes == 30 * kv_bytes_per_token(spec, 4)
    assert on.bytes_per_second == pytest.approx((on.weight_bytes + on.kv_bytes) / 1.39, rel=1e-3)
    assert on.flops_per_second == pytest.approx(on.flops / 1.39, rel=1e-3)


def test_curves_are_those_of_the_device() -> None:
    device = FakeDevice()
    with on_device(DECODER, device, lambda n, m: 2 + 0.1 * n + 0.001 * n * n + 0.01 * m):
        cases = trial(device=device, cases=(Case(5, 8, 1), Case(30, 8, 1)))
    on, off = curves(cases)
    assert (on.arm, off.arm) == ("on", "off")
    assert on.curve is not None
    assert off.curve is not None
    assert on.curve.constant == pytest.approx(2.101, rel=1e-3)
    assert on.curve.linear == pytest.approx(0.01, rel=1e-3)
    # The cache-less step at n tokens before it computes n + 1.
    assert off.curve.quadratic == pytest.approx(0.001, rel=1e-3)
    (found,) = crossovers(cases, (on, off))
    assert found.position == found.first == 5
    assert found.last == 36
    assert found.predicted == pytest.approx(found.measured, rel=1e-3)


def test_where_the_cache_begins_to_pay() -> None:
    device = FakeDevice()
    with on_device(DECODER, device, lambda n, m: 1 + 0.1 * n + (2.9 if m else 0)):
        cases = trial(device=device, cases=(Case(5, 8, 1), Case(40, 8, 1)))
    (found,) = crossovers(cases, curves(cases))
    # They cost the same after 29 tokens.
    assert found.position in (29, 30)


def test_each_piece_of_a_long_text_is_read_weights_for() -> None:
    device = FakeDevice()
    with on_device(LONG, device, lambda n, m: 2 + 0.1 * n + 3 * ((n - 1) // 512)):
        cases = trial(device=device, decoder=LONG, cases=(Case(40, 8, 1), Case(508, 8, 1)))
    on, off = curves(cases)
    assert on.curve is not None
    assert off.curve is not None
    assert (on.curve.piece, off.curve.piece) == (None, 512)
    assert off.curve.per_piece == pytest.approx(3, rel=1e-3)
    (found,) = crossovers(cases, (on, off))
    assert found.predicted == pytest.approx(found.measured, rel=1e-3)
    few, many = (next(a for a in summarise(case).arms if a.arm == "off") for case in cases)
    assert (few.step_pieces, many.step_pieces) == (1, 2)
    assert few.weight_bytes is not None
    assert many.weight_bytes is not None
    layers = sum(shape.numel() for shape in LONG.layers.parameters())
    more_rows = 515 - 47
    assert many.weight_bytes - few.weight_bytes == 4 * (layers + more_rows * LONG.spec.hidden_size)


def test_a_turn_that_was_broken_off_is_left_out_of_the_speedup() -> None:
    (case,) = trial("off", "on")
    whole = summarise(case).arms[1].speedup
    case.arms["off"].runs.append(case.arms["off"].runs[0])
    assert summarise(case).arms[1].speedup == whole


def test_one_new_token_has_no_decode() -> None:
    (case,) = trial(cases=(Case(6, 1, 1),))
    on = next(arm for arm in summarise(case).arms if arm.arm == "on")
    assert (on.decode, on.latency, on.bytes_per_second) == (None, None, None)
