"""Captured steps, played from a tape on the CPU: every family against transformers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor

from llmcli.cache import CacheKind, make_cache
from llmcli.generation.stepper import Stepper
from llmcli.model import Decoder
from llmcli.model.captured import uncapturable
from tests.families.conftest import MakeOracle
from tests.families.rows import ROWS
from tests.oracle import PROMPT, Oracle, Row, assert_close
from tests.tape import Recorder

NOT_CAPTURED = {"gpt_oss", "mixtral", "qwen3_moe", "qwen3_next", "deepseek_v2", "deepseek_v3"}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
@pytest.mark.parametrize("kind", ["growing", "ring"])
def test_played_steps_equal_those_of_transformers(
    row: Row, kind: CacheKind, oracle: MakeOracle
) -> None:
    theirs = oracle(row)
    spec = theirs.loaded.spec
    if uncapturable(spec) is not None:
        assert row.model_type() in NOT_CAPTURED
        return
    if kind == "ring" and not spec.windowed:
        kind = "static"
    with _taped(theirs) as (decoder, recorder):
        got = _steps(decoder, theirs.ids, kind)
    assert_close(got, theirs.logits[PROMPT - 1 :])
    # One step warms up; the second is recorded, and so are those of a ring that has grown.
    assert 1 <= recorder.recorded <= 2
    assert recorder.played == theirs.ids.shape[1] - PROMPT - recorder.recorded


@contextmanager
def _taped(theirs: Oracle) -> Iterator[tuple[Decoder, Recorder]]:
    decoder, recorder = theirs.loaded.decoder, Recorder()
    decoder.capture(recorder)
    try:
        yield decoder, recorder
    finally:
        decoder.capture(None)


def _steps(decoder: Decoder, ids: Tensor, kind: CacheKind) -> Tensor:
    """Logits [T,V] from the last id of the prompt on, each id after it fed by itself."""
    count = ids.shape[1]
    stepper = Stepper(decoder, make_cache(kind, decoder.spec, planned=count), planned=count)
    got = [stepper.feed(ids[:, :PROMPT])]
    return torch.cat(got + [stepper.feed(new) for new in ids[:, PROMPT:].split(1, 1)])
