"""A running generation: text, counts and times, also when it is broken off anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from llmcli.engine.engine import Engine
from llmcli.engine.flags import Flags
from llmcli.engine.generation import Generation
from llmcli.engine.options import GenerateOptions, LoadOptions
from llmcli.engine.prompt import PromptRequest
from llmcli.errors import UsageError
from tests.puppet import Script, make_puppet

EMOJI = "🙂".encode()


def generation(folder: Path, script: Script, *, new: int = 99, stop: str = "never") -> Generation:
    made = make_puppet(folder / "model", script).folder
    engine = Engine.load(made, LoadOptions(device="cpu"))
    options = GenerateOptions(flags=Flags(max_new_tokens=new), stop_strings=[stop])
    return engine.generate(engine.prompt(PromptRequest(text="hi")), options)


SCRIPT: Script = ["a", EMOJI, "st", "op", " he", "re", EMOJI[:2], "z"]


@pytest.mark.parametrize("pieces", range(7))
def test_broken_off_after_any_piece(tmp_path: Path, pieces: int) -> None:
    made = generation(tmp_path, SCRIPT, stop="stop there")
    stream = iter(made)
    for _ in range(pieces):
        next(stream, None)
    made.finish()
    whole = generation(tmp_path, SCRIPT, new=len(made.ids))
    assert made.text == "".join(whole)
    assert made.stats.new_tokens == len(made.ids)
    assert made.finish_reason in ("interrupted", "stop")
    made.finish()
    assert made.text == "".join(whole)


@pytest.mark.parametrize("lost", range(1, 11))
def test_an_interrupt_between_two_states_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: int
) -> None:
    made = generation(tmp_path, SCRIPT, stop="stop there")
    real = made._detokenizer.feed
    fed = iter(range(1, 99))

    def feed(token: int) -> str:
        text = real(token)
        if next(fed) == lost:
            raise KeyboardInterrupt
        return text

    monkeypatch.setattr(made._detokenizer, "feed", feed)
    with pytest.raises(KeyboardInterrupt):
        list(made)
    made.finish()
    assert len(made.ids) == lost
    assert made.text == "".join(generation(tmp_path, SCRIPT, new=lost))


def test_finish_keeps_to_a_stop_that_was_hit(tmp_path: Path) -> None:
    made = generation(tmp_path, SCRIPT, stop="stop")
    assert "".join(made) == "a🙂"
    made.finish()
    assert (made.text, made.matched_stop, made.finish_reason) == ("a🙂", "stop", "stop")


def test_counts_and_times(tmp_path: Path) -> None:
    made = generation(tmp_path, ["a", "b"])
    assert made.stats.first_token_seconds is None
    assert made.stats.prefill_rate is None
    assert made.stats.decode_rate is None
    assert "".join(made) == "ab"
    stats = made.stats
    assert (stats.prompt_tokens, stats.new_tokens) == (2, 3)
    assert stats.first_token_seconds is not None
    assert stats.prefill_rate == 2 / stats.first_token_seconds
    assert stats.decode_rate == 2 / stats.decode_seconds
    assert stats.cache_bytes > 0
    assert stats.peak_memory_bytes is None or stats.peak_memory_bytes > 1_000_000
    assert stats.load_seconds > 0


def test_no_tokens(tmp_path: Path) -> None:
    made = generation(tmp_path, ["a"], new=0)
    assert list(made) == []
    assert (made.finish_reason, made.ids) == ("length", [])
    assert made.stats.first_token_seconds is None


def test_small_files_are_read_before_the_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make_puppet(tmp_path / "model", ["a"]).folder
    (made / "tokenizer.json").unlink()

    def load(*_: object, **__: object) -> Iterator[None]:
        pytest.fail("the weights were read")

    monkeypatch.setattr("llmcli.engine.engine.load_decoder", load)
    with pytest.raises(Exception, match=r"tokenizer\.json"):
        Engine.load(made, LoadOptions())


def test_no_threads(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="threads is 0"):
        Engine.load(tmp_path, LoadOptions(threads=0))


def test_a_search_has_the_rate_of_its_whole_run(tmp_path: Path) -> None:
    made = make_puppet(tmp_path / "model", SCRIPT).folder
    engine = Engine.load(made, LoadOptions(device="cpu"))
    options = GenerateOptions(flags=Flags(strategy="beam", max_new_tokens=9))
    found = engine.generate(engine.prompt(PromptRequest(text="hi")), options)
    assert "".join(found)
    stats = found.stats
    assert stats.first_token_seconds is not None
    assert stats.prefill_rate is None
    assert stats.decode_rate is not None
    assert stats.decode_rate <= stats.new_tokens / stats.first_token_seconds
