"""A small decoder in float64 for every row of tests/families, without transformers' own model."""

from __future__ import annotations

import json
from functools import cache

import torch
from torch import Tensor

from llmcli.families import read_spec
from llmcli.model import Decoder
from llmcli.spec import DecoderSpec
from tests.families.rows import ROWS
from tests.oracle import Row, validation
from tests.tiny import random_decoder

TOKENS = 21


@cache
def spec_of(row: Row) -> DecoderSpec:
    """Read from the row's config as it would be saved."""
    with validation(on=row.validated):
        config = json.loads(row.config().to_json_string(use_diff=False))
    return read_spec(config)[1]


@cache
def decoder_of(row: Row) -> Decoder:
    """Every parameter drawn, biases and sinks too, in float64. Tests share it and change none."""
    return random_decoder(spec_of(row), seed=len(row.name), dtype=torch.float64)


def ids_for(spec: DecoderSpec, count: int = TOKENS) -> Tensor:
    """ids [1,count] in which some ids come back."""
    generator = torch.Generator().manual_seed(7)
    half = torch.randint(spec.vocab_size, (1, (count + 1) // 2), generator=generator)
    return torch.cat((half, half), 1)[:, :count]


ALL = ROWS
