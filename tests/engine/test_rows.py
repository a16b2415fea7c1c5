"""Rows put into batches: each is the generation it would be alone, in a steady order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from llmcli.engine.engine import Engine
from llmcli.engine.flags import Flags
from llmcli.engine.options import GenerateOptions, LoadOptions
from llmcli.engine.prompt import PromptRequest
from llmcli.engine.row import RowRequest, RowResult
from llmcli.engine.rows import Rows, draws
from llmcli.errors import GenerationError
from llmcli.spec import DecoderSpec
from tests.engine.test_goldens import STORIES
from tests.puppet import make_puppet

PROMPTS = [
    "Once upon a time, there was a little girl named Lily. She loved to play outside",
    "One day",
    "",
    "The dog saw a big red ball and",
    "Tom and Sam went to the",
    "One day, a boy",
]
NEW = [9, 16, 4, 12, 0, 7]


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine.load(STORIES, LoadOptions(dtype="float32"))


def _requests(engine: Engine, options: GenerateOptions, texts: Sequence[str]) -> list[RowRequest]:
    drawn = draws(engine.settings(options.flags))
    return [
        RowRequest(
            prompt=engine.prompt(PromptRequest(text=text)),
            seed=100 + row if drawn else None,
            max_new_tokens=NEW[row % len(NEW)],
        )
        for row, text in enumerate(texts)
    ]


def _rows(
    engine: Engine,
    options: GenerateOptions,
    size: int = 4,
    requests: list[RowRequest] | None = None,
) -> Rows:
    requests = requests or _requests(engine, options, PROMPTS)
    return Rows(engine, requests, options, engine.settings(options.flags), batch_size=size)


def _alone(engine: Engine, options: GenerateOptions, row: int, request: RowRequest) -> RowResult:
    assert not isinstance(request.prompt, Exception)
    flags = replace(options.flags, seed=request.seed, max_new_tokens=request.max_new_tokens)
    generation = engine.generate(request.prompt, replace(options, flags=flags))
    list(generation)
    return RowResult(
        row=row,
        ids=tuple(generation.ids),
        text=generation.text,
        finish_reason=generation.finish_reason,
        stop_string=generation.matched_stop,
    )


CASES: dict[str, dict[str, Any]] = {
    "greedy": {},
    "greedy, penalties": {"repetition_penalty": 1.3, "no_repeat_ngram": 3, "min_new_tokens": 5},
    "sample": {"temperature": 1.2, "top_p": 0.9, "frequency_penalty": 0.4},
    "mirostat": {"mirostat_tau": 3.0},
    "bias": {"logit_bias": ("7=4",), "suppress": ("9",), "temperature": 0.9},
    "guidance": {"guidance_scale": 1.4, "temperature": 0.9},
    "beam": {"strategy": "beam", "num_beams": 3},
    "prompt-lookup": {"strategy": "prompt-lookup", "temperature": 0.9},
}


@pytest.mark.parametrize("size", [3, 8])
@pytest.mark.parametrize("case", CASES)
def test_each_row_is_its_single_run(engine: Engine, case: str, size: int) -> None:
    options = GenerateOptions(flags=Flags(**CASES[case]), stop_strings=(" very", "ed ", ", "))
    rows = _rows(engine, options, size)
    results = sorted(rows.run(), key=lambda result: result.row)
    requests = _requests(engine, options, PROMPTS)
    expected = [_alone(engine, options, row, one) for row, one in enumerate(requests)]
    assert results == expected
    assert {one.finish_reason for one in results} >= {"length", "stop"}
    assert rows.tally.new_tokens == sum(len(one.ids) for one in results)


@pytest.mark.parametrize("cache", ["none", "static", "quantized-8"])
def test_with_every_other_cache(engine: Engine, cache: Any) -> None:
    options = GenerateOptions(flags=Flags(temperature=0.9), cache=cache)
    results = sorted(_rows(engine, options).run(), key=lambda result: result.row)
    requests = _requests(engine, options, PROMPTS)
    assert results == [_alone(engine, options, row, one) for row, one in enumerate(requests)]


# the plan


def _lengths(rows: Rows, requests: list[RowRequest]) -> list[list[int]]:
    return [
        [len(one.prompt.ids) for row in batch for one in [requests[row]]]  # type: ignore[union-attr]
        for batch in rows.batches
    ]


def test_rows_of_like_length_are_put_together(engine: Engine) -> None:
    options = GenerateOptions()
    requests = _requests(engine, options, PROMPTS)
    rows = _rows(engine, options, 2)
    flat = [length for batch in _lengths(rows, requests) for length in batch]
    assert flat == sorted(flat)
    assert [len(batch) for batch in rows.batches] == [2, 2, 2]
    assert rows.apart is None


@pytest.mark.parametrize("why", ["this model cannot pad", "cache quantized-8 packs by place"])
def test_what_cannot_be_padded_shares_a_batch_where_equally_long(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    if "model" in why:
        monkeypatch.setattr(DecoderSpec, "can_pad", False)
        options = GenerateOptions()
    else:
        options = GenerateOptions(cache="quantized-8")
    requests = _requests(engine, options, [*PROMPTS, *PROMPTS])
    rows = _rows(engine, options, 8, requests)
    for lengths in _lengths(rows, requests):
        assert len(set(lengths)) == 1
    assert max(len(batch) for batch in rows.batches) == 2
    assert rows.apart is not None
    assert rows.apart.startswith(why)
    assert [one.row for one in sorted(rows.run(), key=lambda one: one.row)] == [*range(12)]


def test_a_strategy_that_knows_no_batch_is_named(engine: Engine) -> None:
    rows = _rows(engine, GenerateOptions(flags=Flags(strategy="beam")))
    assert rows.apart == "strategy beam, as asked for, runs row by row"


def test_an_option_that_the_batch_does_not_read_is_not_dropped(engine: Engine) -> None:
    assert _rows(engine, GenerateOptions(explain=3)).apart is not None
    assert _rows(engine, GenerateOptions(top_logprobs=3)).apart is not None


@pytest.mark.parametrize("case", ["sample", "beam"])
def test_what_is_left_comes_in_the_same_order(engine: Engine, case: str) -> None:
    options = GenerateOptions(flags=Flags(**CASES[case]))
    whole = list(_rows(engine, options, 3).run())
    for cut in range(1, len(whole)):
        done = {one.row for one in whole[:cut]}
        assert list(_rows(engine, options, 3).run(done=done)) == whole[cut:]


# samples of one prompt


def _samples(engine: Engine, count: int, size: int, **how: Any) -> list[RowResult]:
    options = GenerateOptions(flags=Flags(temperature=1.1), **how)
    prompt = engine.prompt(PromptRequest(text=PROMPTS[0]))
    requests = [RowRequest(prompt=prompt, seed=7 + at, max_new_tokens=10) for at in range(count)]
    return sorted(_rows(engine, options, size, requests).run(), key=lambda one: one.row)


@pytest.mark.parametrize("cache", ["auto", "none", "quantized-8"])
def test_a_sample_is_the_same_of_any_number(engine: Engine, cache: Any) -> None:
    many = _samples(engine, 5, 8, cache=cache)
    assert len({one.ids for one in many}) > 3
    assert _samples(engine, 3, 2, cache=cache) == many[:3]
    assert _samples(engine, 1, 1, cache=cache) == many[:1]


@pytest.mark.parametrize("size", [1, 2, 8])
def test_samples_take_one_prefill(engine: Engine, size: int) -> None:
    shapes: list[tuple[int, ...]] = []
    hook = engine.loaded.decoder.embed_tokens.register_forward_hook(
        lambda _module, inputs, _out: shapes.append(tuple(inputs[0].shape))
    )
    _samples(engine, 5, size)
    hook.remove()
    assert [shape for shape in shapes if shape[1] > 1] == [shapes[0]]
    assert shapes[0][0] == 1


# rows that fail


def test_a_broken_row_fails_by_itself(tmp_path: Path) -> None:
    engine = Engine.load(make_puppet(tmp_path, ["one ", "two"]).folder, LoadOptions())
    requests = [
        RowRequest(prompt=engine.prompt(PromptRequest(text=text)), seed=None, max_new_tokens=9)
        for text in ("hi", "a", "hiz", "hello")
    ]
    bad = requests[2].prompt
    assert not isinstance(bad, Exception)
    engine.loaded.decoder.embed_tokens.weight.data[bad.ids[-1]] = float("nan")
    requests[1] = replace(requests[1], prompt=GenerationError("no prompt"))
    results = list(_rows(engine, GenerateOptions(), 8, requests).run())
    assert [one.row for one in results] == [1, 2, 0, 3]
    assert str(results[0].error) == "no prompt"
    assert "logits for new token 1 are not finite in float32" in str(results[1].error)
    for one in results[2:]:
        assert (one.text, one.finish_reason, one.error) == ("one two", "stop", None)


def test_rows_may_say_nothing_at_all(tmp_path: Path) -> None:
    engine = Engine.load(make_puppet(tmp_path, []).folder, LoadOptions())
    requests = _requests(engine, GenerateOptions(), ["a", "bb", "ccc", "d", "e", "f"])
    results = {one.row: one for one in _rows(engine, GenerateOptions(), 8, requests).run()}
    for row, most in enumerate(NEW):
        said = results[row]
        assert (said.text, len(said.ids)) == ("", min(most, 1))
        assert said.finish_reason == ("stop" if most else "length")
