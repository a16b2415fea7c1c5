"""How an option is declared: flags, values with parsers that name the option, help panels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from difflib import get_close_matches
from functools import partial
from typing import TypeVar, get_args

import typer

from llmcli.checkpoint.escape import printable
from llmcli.cli.prompt_input import utf8_argument
from llmcli.errors import UsageError

PROMPT = "Prompt"
LENGTH = "Where the text ends"
CHOICE = "How tokens are chosen"
MACHINE = "Model and machine"
OUTPUT = "Output"
_HUGE = 2**63
_T = TypeVar("_T")


def flag(*names: str, help: str, panel: str | None = None) -> object:  # noqa: A002
    return typer.Option(*names, help=help, rich_help_panel=panel, show_default=False)


def value_option(
    *names: str,
    help: str,  # noqa: A002
    metavar: str,
    panel: str | None = None,
    parser: Callable[[str], object] | None = None,
) -> object:
    return typer.Option(
        *names,
        help=help,
        metavar=metavar,
        rich_help_panel=panel,
        show_default=False,
        parser=parser,
    )


def _parser(
    name: str, convert: Callable[[str], _T], wanted: str, choices: Sequence[str] = ()
) -> Callable[[str], _T]:
    """The parser's own conversions would name neither the option nor the value."""

    def parse(text: str) -> _T:
        try:
            return convert(text)
        except ValueError:
            raise UsageError(
                f"{name} is {printable(repr(text), 60)}; it must be {wanted}",
                hint=f"{_meant(text, choices)}leave it out for its default",
            ) from None

    return parse


def _meant(text: str, choices: Sequence[str]) -> str:
    """A question: the only choice that ends as the text does (8, int8), or the nearest (fp16)."""
    low = text.strip().lower()
    ending = [one for one in choices if low and (one.endswith(low) or low.endswith(one))]
    near = ending if len(ending) == 1 else get_close_matches(low, choices, n=1, cutoff=0.5)
    return f"did you mean {near[0]}? " if near else ""


def whole_parser(name: str) -> Callable[[str], int]:
    def convert(text: str) -> int:
        value = int(text)
        if abs(value) >= _HUGE:
            raise ValueError
        return value

    return _parser(name, convert, "a whole number below 2**63")


def number_parser(name: str) -> Callable[[str], float]:
    return _parser(name, float, "a number")


def text_parser(name: str) -> Callable[[str], str]:
    """A parser for any text that is valid UTF-8."""
    return partial(utf8_argument, name)


def number_option(name: str, metavar: str, help: str, panel: str) -> object:  # noqa: A002
    """An option that takes a number."""
    return value_option(name, metavar=metavar, help=help, panel=panel, parser=number_parser(name))


def whole_option(name: str, metavar: str, help: str, panel: str) -> object:  # noqa: A002
    """An option that takes a whole number."""
    return value_option(name, metavar=metavar, help=help, panel=panel, parser=whole_parser(name))


def text_option(name: str, metavar: str, help: str, panel: str) -> object:  # noqa: A002
    """An option that takes a text."""
    return value_option(name, metavar=metavar, help=help, panel=panel, parser=text_parser(name))


def one_of(name: str, choices: object) -> Callable[[str], str]:
    """A parser for the values of a Literal."""
    known: tuple[str, ...] = get_args(choices)

    def convert(text: str) -> str:
        if text not in known:
            raise ValueError
        return text

    return _parser(name, convert, f"one of {', '.join(known)}", known)
