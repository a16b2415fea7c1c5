"""Captured steps, played from a tape on the CPU: every family against transformers."""

from __future__ import annotations

import pytest
import torch

from llmcli.cache import make_cache
from llmcli.generation.stepper import Stepper
from llmcli.model.captured import uncapturable
from tests.families.conftest import MakeOracle
from tests.families.rows import ROWS
from tests.oracle import Row, assert_close
from tests.tape import Recorder

STEPS = 7
# qwen3_next and the DeepSeeks have rows of both kinds.
NOT_CAPTURED = {"gpt_oss", "mixtral", "qwen3_moe", "qwen3_next", "deepseek_v2", "deepseek_v3"}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_played_steps_equal_those_of_transformers(row: Row, oracle: MakeOracle) -> None:
    theirs, recorder = oracle(row), Recorder()
    decoder, ids = theirs.loaded.decoder, theirs.ids
    why = uncapturable(decoder.spec)
    if why is not None:
        assert row.model_type() in NOT_CAPTURED
        return
    start = ids.shape[1] - STEPS
    cache = make_cache("ring" if decoder.spec.windowed else "growing", decoder.spec)
    stepper = Stepper(decoder, cache, planned=ids.shape[1])
    decoder.capture(recorder)
    try:
        stepper.feed(ids[:, :start])
        got = torch.cat([stepper.feed(new) for new in ids[:, start:].split(1, 1)])
    finally:
        decoder.capture(None)
    assert_close(got, theirs.logits[start:])
    assert recorder.recorded == 1
    assert recorder.played == STEPS - 2
