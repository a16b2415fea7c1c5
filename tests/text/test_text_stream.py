"""B and D10 together: ids to shown text, and who is closed when a stop string ends it."""

from __future__ import annotations

from collections.abc import Iterator

from text_builders import STORIES

from llmcli.text.detokenizer import Detokenizer
from llmcli.text.stop_strings import StopStrings
from llmcli.text.stream import stream_text
from llmcli.text.tokenizer import Tokenizer


def source(ids: list[int], log: list[str]) -> Iterator[int]:
    try:
        for token in ids:
            log.append(f"made {token}")
            yield token
    finally:
        log.append("closed")


def test_stop_ends_the_stream_and_closes_the_source(stories: Tokenizer) -> None:
    prompt = stories.encode_raw("STOP Once upon", bos=True)
    ids = stories.encode_raw("a time. STOP more words follow here", bos=False)
    log: list[str] = []
    stream = stream_text(
        source(ids, log), Detokenizer(stories, prompt), StopStrings(["STOP", "never"])
    )
    pieces = list(stream)
    assert "".join(pieces) == " a time. "
    assert all(pieces)
    assert stream.stopped
    assert stream.matched == "STOP"
    assert log[-1] == "closed"
    assert log.count("closed") == 1
    assert len(log) < len(ids)


def test_without_a_stop_the_joined_stream_is_the_decode(stories: Tokenizer) -> None:
    ids = stories.encode_raw("a time. STO", bos=False)
    stream = stream_text(iter(ids), Detokenizer(stories), StopStrings(["STOP"]))
    assert "".join(stream) == stories.decode(ids) == "a time. STO"
    assert not stream.stopped


def test_stop_that_only_the_flushed_rest_completes(stories: Tokenizer) -> None:
    ids = [*stories.encode_raw("ab", bos=False), 3 + 0x0A, 3 + 0x0A]
    stream = stream_text(ids, Detokenizer(stories), StopStrings(["\n\n"]))
    assert "".join(stream) == "ab"
    assert stream.matched == "\n\n"


def test_stop_inside_a_character_of_several_bytes() -> None:
    stories = Tokenizer.load(STORIES)
    ids = [3 + byte for byte in "x😀y".encode()]
    stream = stream_text(ids, Detokenizer(stories), StopStrings(["😀"]))
    assert "".join(stream) == "x"


def test_leaving_early_closes_the_source(stories: Tokenizer) -> None:
    log: list[str] = []
    ids = stories.encode_raw("a long text of several words", bos=False)
    pieces = iter(stream_text(source(ids, log), Detokenizer(stories), StopStrings([])))
    next(pieces)
    pieces.close()
    assert log[-1] == "closed"
