"""What the kernels are said to keep is what they take."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from llmcli.cache import CacheKind
from llmcli.insight.kernel_work import NOTHING, Kernels, Packed, kept_bytes, tokens_together
from llmcli.kernels.layout import BARRIER_SIZE
from llmcli.model import Decoder
from llmcli.model.fused import FusedStep
from llmcli.model.packed import pack_int4, pack_int8
from llmcli.spec import PackingKind, int8_group, packing
from tests.tiny import random_parameters, tiny_spec

# Neither power of two nor multiple of a cache line, where the heads leave a choice.
SPEC = tiny_spec(hidden_size=96, intermediate_size=200)


def _fused(kind: PackingKind | None, group: int) -> tuple[FusedStep, Packed]:
    kinds = packing(SPEC, kind) if kind else {}
    packs = {
        "int8": lambda one: pack_int8(one, int8_group(one.shape[1])),
        "int4": lambda one: pack_int4(one, group),
    }
    parameters = {
        name: packs[kinds[name]](one.float()) if name in kinds else one.float()
        for name, one in random_parameters(SPEC).items()
    }
    decoder = Decoder.filled(SPEC, parameters.items(), dtype=torch.float32)
    team = SimpleNamespace(size=3, barrier=np.zeros(BARRIER_SIZE, np.int64))
    return FusedStep(decoder.layers, SPEC, team), Packed(kinds, group) if kinds else NOTHING


@pytest.mark.parametrize(
    ("kind", "group"), [(None, 32), ("int8", 32), ("int4", 32), ("int4", 20), ("int4", 256)]
)
@pytest.mark.parametrize(("tokens", "keys"), [(1, 5), (2, 700), (40, 1024)])
def test_what_is_kept(kind: PackingKind | None, group: int, tokens: int, keys: int) -> None:
    fused, packed = _fused(kind, group)
    assert fused.ready
    fused._make_room(tokens, keys)
    taken = sum(room.nbytes for room in fused._job._rooms.values())
    kernels = Kernels(threads=3, most_tokens=64)
    assert kept_bytes(SPEC, kernels, packed, tokens=tokens, keys=keys) == taken


@pytest.mark.parametrize(
    ("kind", "windowed", "together"),
    [
        ("growing", False, 64),
        ("static", False, 64),
        ("none", False, 64),
        ("growing", True, 64),
        ("ring", True, 1),
        ("static", True, 1),
        ("quantized-8", False, 0),
        ("offloaded", True, 0),
    ],
)
def test_how_many_go_together(kind: CacheKind, windowed: bool, together: int) -> None:
    layers = tuple(replace(one, window=7 if windowed else None) for one in SPEC.layers)
    spec = replace(SPEC, layers=layers)
    assert tokens_together(spec, Kernels(2, 64), kind, 512) == together
    assert tokens_together(spec, Kernels(2, 64), kind, 5) == min(together, 5)
