"""Markdown as it comes: block by block, and nothing in it that could drive the terminal."""

from __future__ import annotations

import re

import pytest

from llmcli.cli.chatting.markdown import MarkdownBlocks

STYLES = re.compile(r"\x1b\[[0-9;]*m")
TEXT = (
    "# Title\n\nSome **bold** text\nin two lines.\n\n```py\na = 1\n\nb = 2\n```\n\n"
    "- one\n- two\n\n    more of two\n\nThe [end](http://x.example)."
)


@pytest.fixture(autouse=True)
def width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")


def rendered(pieces: list[str], *, colour: bool = True) -> str:
    blocks = MarkdownBlocks(colour=colour)
    return "".join([blocks.feed(piece) for piece in pieces] + [blocks.flush()])


def test_the_cuts_change_nothing() -> None:
    whole = rendered([TEXT])
    assert rendered(list(TEXT)) == whole
    plain = STYLES.sub("", whole)
    assert "Some bold text in two lines." in plain
    assert re.search(r"a = 1\s+b = 2", plain)
    assert "end (http://x.example)" in plain
    assert "**" not in plain
    assert whole != plain


def test_a_block_is_shown_once_it_is_complete() -> None:
    blocks = MarkdownBlocks(colour=False)
    assert blocks.feed("one\ntwo") == ""
    assert blocks.feed("\n\nth") == "one two"
    assert blocks.feed("ree") == ""
    assert blocks.flush() == "\n\nthree"


def test_control_codes_do_not_get_through() -> None:
    out = rendered(["a\x1b]52;c;x\x07 [l](http://x/\x1b[2J) `\x9b31m`\n\n```\n\x1b[31m\n```"])
    assert not re.search(r"[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f]", out)
    assert "\x1b" not in STYLES.sub("", out)
    assert "␛]52;c;x␇" in out


def test_markup_and_emoji_are_text() -> None:
    assert rendered(["[bold]x[/bold] :smile: [/INST]"]) == "[bold]x[/bold] :smile: [/INST]"


def test_without_colour_no_colour_is_named() -> None:
    out = rendered([TEXT], colour=False)
    assert not re.search(r"\x1b\[[0-9;]*[34]\d", out)
