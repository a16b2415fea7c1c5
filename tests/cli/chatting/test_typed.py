'''Messages, slash commands and `"""` blocks.'''

from __future__ import annotations

import pytest

from llmcli.cli.chatting.blocks import completed, is_open
from llmcli.cli.chatting.typed import Typed


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("/help", ("/help", "")),
        ("  /set  temperature 0.5 ", ("/set", "temperature 0.5")),
        ("/system two\nlines", ("/system", "two\nlines")),
        ("/system\ntwo lines", ("/system", "two lines")),
        ("/", ("/", "")),
        ("//help", None),
        ("hi /help", None),
        ("", None),
    ],
)
def test_commands(text: str, command: tuple[str, str] | None) -> None:
    assert Typed(text).command == command
    assert Typed(text, verbatim=True).command is None


def test_two_slashes_stand_for_one() -> None:
    assert Typed("//etc is a folder").message == "/etc is a folder"
    assert Typed("//etc", verbatim=True).message == "//etc"
    assert Typed("a//b").message == "a//b"


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (['"""', "a", "", "b", '"""'], "a\n\nb"),
        (['"""a', 'b"""'], "a\nb"),
        (['"""a"""'], "a"),
        (['  """', "/help", '"""'], "/help"),
        (['"""', "  kept  ", '"""'], "  kept  "),
        # The input ended first.
        (['"""', "a", "b"], "a\nb"),
        (['"""'], ""),
        (['say """a"""'], 'say """a"""'),
        # Code, pasted
        (['"""Doc."""\nimport os\n'], '"""Doc."""\nimport os\n'),
        (['"""', 'a""" b'], '"""\na""" b'),
    ],
)
def test_blocks(lines: list[str], message: str) -> None:
    left = iter(lines[1:])

    def more() -> str:
        try:
            return next(left)
        except StopIteration:
            raise EOFError from None

    found = completed(lines[0], more)
    assert found.message == message
    assert found.verbatim == lines[0].lstrip().startswith('"""')
    assert next(left, None) is None


def test_an_open_block() -> None:
    assert is_open('"""')
    assert is_open('  """a\nb')
    assert not is_open('"""a"""')
    assert not is_open('a """')
