"""Norms in bfloat16, where it shows whether the weight multiplies before or after the cast."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from torch import nn

from llmcli.model.norm import make_norm
from llmcli.spec import DecoderSpec
from tests.families.conftest import MakeOracle
from tests.families.rows import ROWS
from tests.oracle import Row

rows = pytest.mark.parametrize(
    "row", [row for row in ROWS if row.bfloat16], ids=lambda row: row.name
)


@rows
def test_rms_norm_rounds_as_the_family_does(row: Row, oracle: MakeOracle) -> None:
    theirs = oracle(row)
    spec = theirs.loaded.spec
    if spec.norm != "rms":
        return  # a layer norm is one call of torch, in theirs as in ours
    (final,) = (
        child for child in theirs.model.base_model.children() if "Norm" in type(child).__name__
    )
    final = deepcopy(final).bfloat16()
    x = 3 * torch.randn(1, 16, spec.hidden_size, generator=torch.Generator().manual_seed(0))
    expected = final(x.bfloat16())
    assert torch.equal(_filled(spec, final)(x.bfloat16()), expected)
    if not spec.norm_offset:
        other = replace(spec, norm_casts_first=not spec.norm_casts_first)
        assert not torch.equal(_filled(other, final)(x.bfloat16()), expected)


def _filled(spec: DecoderSpec, theirs: nn.Module) -> nn.Module:
    norm = make_norm(spec)
    norm.weight = nn.Parameter(theirs.weight.detach(), requires_grad=False)
    return norm
