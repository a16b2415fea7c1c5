"""The plan: sizes by arithmetic, and the flag that makes it fit really does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from llmcli.cache import CacheKind
from llmcli.insight.facts import config_facts
from llmcli.insight.holding import Computing, plain_bytes, read_per_token
from llmcli.insight.kernel_work import NOTHING, Kernels, kernel_bytes
from llmcli.insight.machine import available_memory, read_bandwidth
from llmcli.insight.memory_plan import Machine, MemoryPlan, plan_memory
from llmcli.insight.presets import preset_facts
from llmcli.model import Decoder
from llmcli.spec import kv_bytes_per_layer, parameter_shapes, wide_parameters
from tests.insight.configs import EVERY_ROW, row_facts
from tests.oracle import Row
from tests.tiny import TINY

GB = 10**9
LLAMA = preset_facts("llama-3-8b")
HERE = Machine(
    device="cpu",
    device_reason="asked for",
    dtype="float32",
    dtype_reason="asked for",
    keeps_narrow=False,
    quantized=Computing("float32", keeps_narrow=False),
    steps="torch (switched off)",
    kernels=None,
    free=None,
    bandwidth=10e9,
)


def _plan(free: int | None, *, context: int = 4096, dtype: str = "float32") -> MemoryPlan:
    machine = replace(HERE, free=free, dtype=dtype)
    return plan_memory(LLAMA, machine, context=context, kind="growing")


def test_known_sizes() -> None:
    found = _plan(100 * GB, dtype="bfloat16", context=8192)
    assert found.weights == 2 * 8_030_261_248
    assert found.cache == 8192 * 2 * 32 * 8 * 128 * 2
    assert found.peak == found.weights + found.cache + found.work
    # All but the embedding's other rows is read for each token.
    rows = 2 * (128256 - 1) * 4096
    assert found.read_per_token == found.weights - rows + found.cache
    assert found.tokens_per_second == 10e9 / found.read_per_token


@pytest.mark.parametrize(
    ("free", "dtype", "told"),
    [
        (100 * GB, "float32", "it fits"),
        (20 * GB, "float32", "--dtype bfloat16 would make it fit"),
        (33 * GB, "float32", "--dtype bfloat16 would make it fit"),
        (16 * GB, "float32", "--quantize int8 would make it fit"),
        (16 * GB, "bfloat16", "--quantize int8 would make it fit"),
        (9 * GB, "bfloat16", "--quantize int4 would make it fit"),
        (6_400_000_000, "bfloat16", "--quantize int4 and --cache quantized-8 would make it fit"),
        (5_900_000_000, "bfloat16", "tokens and --quantize int4 would make it fit"),
        (1 * GB, "bfloat16", "no flag makes it fit: with --quantize int4 the weights alone are 5,"),
        (None, "bfloat16", "not known"),
    ],
)
def test_advice(free: int | None, dtype: str, told: str) -> None:
    found = _plan(free, dtype=dtype)
    assert told in found.advice
    assert found.fits is (None if free is None else told == "it fits")


@pytest.mark.parametrize("kind", ["quantized-8", "quantized-4", "growing"])
def test_the_advised_cache_fits_and_no_milder_one_does(kind: CacheKind) -> None:
    here = replace(HERE, free=6_100_000_000)
    found = plan_memory(LLAMA, here, context=4096, kind=kind, quantize="int4")
    assert found.fits is (kind == "quantized-4")
    told = "it fits" if kind == "quantized-4" else "--cache quantized-4 would make it fit"
    assert found.advice == told


def test_without_a_cache_none_is_advised() -> None:
    here = replace(HERE, free=5_500_000_000, dtype="bfloat16")
    assert "--cache" not in plan_memory(LLAMA, here, context=4096, kind="none").advice


def test_the_advised_length_is_the_longest_that_fits() -> None:
    here = replace(HERE, free=5_900_000_000)

    def fits(context: int) -> MemoryPlan:
        return plan_memory(LLAMA, here, context=context, kind="growing", quantize="int4")

    advice = fits(4096).advice
    (longest,) = [int(word.replace(",", "")) for word in advice.split() if word[0].isdigit()]
    assert fits(longest).fits
    assert not fits(longest + 1).fits


@EVERY_ROW
def test_weights_take_what_a_filled_decoder_takes(row: Row) -> None:
    spec = row_facts(row).spec
    wide = wide_parameters(spec)
    filled = Decoder.filled(
        spec,
        (
            (name, torch.zeros(shape, dtype=torch.float32 if name in wide else torch.bfloat16))
            for name, shape in parameter_shapes(spec).items()
        ),
    )
    held = sum(one.nbytes for one in filled.parameters())
    sizes = plain_bytes(spec, 2)
    assert sum(sizes.values()) == held
    assert read_per_token(spec, sizes) <= held


def test_idle_experts_are_not_read() -> None:
    facts = config_facts(
        "moe",
        {**TINY, "model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2},
    )
    expert = 3 * TINY["hidden_size"] * TINY["intermediate_size"]
    rows = (TINY["vocab_size"] - 1) * TINY["hidden_size"]
    sizes = plain_bytes(facts.spec, 2)
    idle = sum(sizes.values()) - read_per_token(facts.spec, sizes)
    assert idle == 2 * (2 * 6 * expert + rows)


def test_without_a_cache_nothing_is_kept() -> None:
    found = plan_memory(LLAMA, replace(HERE, free=GB), context=4096, kind="none")
    assert found.cache == 0
    assert found.tokens_per_second is None
    assert found.work > _plan(GB).work


def test_free_memory_is_the_least_that_anything_allows(tmp_path: Path) -> None:
    meminfo, limit, used = (tmp_path / name for name in ("meminfo", "max", "current"))
    meminfo.write_text("MemTotal: 99 kB\nMemAvailable:    4000 kB\n")
    assert available_memory(meminfo, ()) == 4_096_000
    used.write_text("1000\n")
    for text, free in (("max\n", 4_096_000), ("1500\n", 500), ("900\n", 0)):
        limit.write_text(text)
        assert available_memory(meminfo, ((limit, used),)) == free
    assert available_memory(tmp_path / "none", ()) is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_probe_measures_something(dtype: torch.dtype) -> None:
    assert read_bandwidth(torch.device("cpu"), dtype, most_bytes=1 << 20) > 1e6


@pytest.mark.parametrize("kind", ["growing", "none"])
def test_work_of_kernels_and_of_what_is_too_long_for_them(kind: CacheKind) -> None:
    def work(kernels: Kernels | None, context: int) -> int:
        here = replace(HERE, kernels=kernels)
        return plan_memory(LLAMA, here, context=context, kind=kind).work

    one, few, many = (Kernels(2, most) for most in (1, 100, 512))
    logits = 3 * LLAMA.spec.vocab_size * 4
    for context in (100, 400):
        keys = context if kind == "growing" else min(context, 512)
        kept = kernel_bytes(LLAMA.spec, many, NOTHING, tokens=context, keys=keys)
        layer = context * kv_bytes_per_layer(LLAMA.spec, 4) * (kind == "none")
        assert work(many, context) == kept + layer + logits
    # A longer piece goes through the modules, and the kernels keep what they took.
    assert work(few, 400) > work(None, 400)
    assert work(few, 400) > work(one, 400) > work(None, 400)
    assert work(few, 100) < work(few, 400)


def test_kernels_count_only_where_it_computes_in_float32() -> None:
    here = replace(HERE, kernels=Kernels(2, 512))
    with_kernels = plan_memory(LLAMA, here, context=512, kind="growing").widths
    without = plan_memory(LLAMA, HERE, context=512, kind="growing").widths
    for one, other in zip(with_kernels, without, strict=True):
        assert (one.peak == other.peak) == (one.dtype != "float32")
