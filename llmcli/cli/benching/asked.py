"""The options of bench-cache alone, and the checks that need no checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import typer

from llmcli.checkpoint.escape import printable
from llmcli.cli import options
from llmcli.cli.options import value_option, whole_option
from llmcli.cli.options.decoding import Decoding
from llmcli.engine.flags import Flags
from llmcli.errors import UsageError
from llmcli.generation.reads import STRATEGY_NAMES, StrategyName

MEASURING = "What is measured"
RESULTS = "How it is shown"

OutputForm = Literal["table", "markdown", "csv", "json", "jsonl"]

_MOST = 10**7


class Counts(tuple[int, ...]):
    """Numbers with commas between them; a plain tuple would mean several arguments."""

    __slots__ = ()


class Names(tuple[str, ...]):
    """Names with commas between them."""

    __slots__ = ()


_T = TypeVar("_T", Counts, Names)


def _list_of(
    kind: type[_T], name: str, wanted: str, convert: Callable[[str], Any]
) -> Callable[[str], _T]:
    def parse(text: str) -> _T:
        try:
            found = kind([convert(part.strip()) for part in text.split(",")])
        except ValueError:
            found = kind()
        if not found or len(set(found)) < len(found):
            raise UsageError(
                f"{name} is {printable(repr(text), 60)}; it must be {wanted}",
                hint="leave it out for its default",
            )
        return found

    return parse


def _count(text: str) -> int:
    value = int(text)
    if not 1 <= value <= _MOST:
        raise ValueError
    return value


def _strategy(text: str) -> StrategyName:
    for name in STRATEGY_NAMES:
        if text == name and name != "speculative":
            return name
    raise ValueError


_COUNTS = "whole numbers from 1 up, each once, with commas between them"
_STRATEGIES = ", ".join(name for name in STRATEGY_NAMES if name != "speculative")

PromptTokens = Annotated[
    Counts | None,
    value_option(
        "--prompt-tokens",
        metavar="N[,N]",
        help="Random prompts of so many tokens [default: 32,128,512].",
        panel=MEASURING,
        parser=_list_of(Counts, "--prompt-tokens", _COUNTS, _count),
    ),
]
NewTokens = Annotated[
    int | None,
    whole_option(
        "--new-tokens", "N", "So many new tokens, past any end token [default: 100].", MEASURING
    ),
]
Repeats = Annotated[
    int | None,
    whole_option("--repeats", "N", "Timed runs of each arm [default: 5].", MEASURING),
]
Warmup = Annotated[
    int | None,
    whole_option(
        "--warmup", "N", "Runs of the same shape before them, told apart [default: 1].", MEASURING
    ),
]
Arms = Annotated[
    Names | None,
    value_option(
        "--arms",
        metavar="NAME[,NAME]",
        help="What takes turns: on (the usual cache), off, growing, static, ring, quantized-8, "
        "quantized-4, offloaded [default: on,off].",
        panel=MEASURING,
        parser=_list_of(Names, "--arms", "names of arms, each once, with commas between them", str),
    ),
]
BatchSizes = Annotated[
    Counts | None,
    value_option(
        "--batch-size",
        metavar="N[,N]",
        help="So many rows at once [default: 1].",
        panel=MEASURING,
        parser=_list_of(Counts, "--batch-size", _COUNTS, _count),
    ),
]
Strategies = Annotated[
    Names | None,
    value_option(
        "--strategy",
        metavar="NAME[,NAME]",
        help=f"One or more of {_STRATEGIES} [default: greedy].",
        panel=MEASURING,
        parser=_list_of(Names, "--strategy", f"one or more of {_STRATEGIES}", _strategy),
    ),
]
Strict = Annotated[
    bool,
    typer.Option(
        "--strict",
        help="Exit 1 when an arm chooses other tokens than the reference, near ties aside.",
        rich_help_panel=MEASURING,
        show_default=False,
    ),
]
Output = Annotated[
    OutputForm | None,
    value_option(
        "--output",
        metavar="FORM",
        help="table, markdown, csv, json or jsonl [default: table].",
        panel=RESULTS,
        parser=options.one_of("--output", OutputForm),
    ),
]
PlotFile = Annotated[
    Path | None,
    value_option(
        "--plot",
        metavar="FILE",
        help="Draw the cost of a token by position into a .png or .svg file.",
        panel=RESULTS,
    ),
]
Compare = Annotated[
    tuple[Path, Path] | None,
    typer.Option(
        "--compare",
        metavar="A.json B.json",
        help="Measure nothing; put two --output json reports side by side.",
        rich_help_panel=RESULTS,
        show_default=False,
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measuring:
    """What is measured, and how often."""

    prompt_tokens: PromptTokens = None
    repeats: Repeats = None
    warmup: Warmup = None
    arms: Arms = None
    batch_size: BatchSizes = None
    strict: Strict = False

    def __post_init__(self) -> None:
        for name, value, least in (
            ("--repeats", self.repeats, 1),
            ("--warmup", self.warmup, 0),
        ):
            if value is not None and not least <= value <= _MOST:
                raise UsageError(
                    f"{name} is {value}; it must lie between {least} and {_MOST}",
                    hint="leave it out for its default",
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchDecoding(Decoding):
    """The decoding options, with a list of strategies and a forced length."""

    max_new_tokens: NewTokens = None
    strategy: Strategies = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        if self.max_new_tokens is not None and not 1 <= self.max_new_tokens <= _MOST:
            raise UsageError(
                f"--new-tokens is {self.max_new_tokens}; it must lie between 1 and {_MOST}",
                hint="leave it out for 100",
            )

    def flags(self) -> Flags:
        """As the engine takes them, without a strategy and a length."""
        names = {one.name for one in fields(Flags)} - {"strategy", "max_new_tokens"}
        return Flags(**{name: getattr(self, name) for name in names})

    @property
    def strategies(self) -> tuple[StrategyName, ...]:
        """Those asked for, else greedy."""
        given: tuple[str, ...] = self.strategy or ("greedy",)
        return tuple(name for name in STRATEGY_NAMES if name in given)
