"""Every option, declared once, for all commands that take it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Literal, TypeVar, get_args

import typer

from llmcli import __version__
from llmcli.checkpoint.escape import printable
from llmcli.cli import terminal
from llmcli.cli.prompt_input import utf8_argument
from llmcli.engine.arms import NAMES as ARMS
from llmcli.errors import UsageError

EarlyStoppingChoice = Literal["on", "off", "never"]
StrategyChoice = Literal[
    "greedy", "sample", "beam", "contrastive", "dola", "prompt-lookup", "speculative"
]
DtypeChoice = Literal["auto", "float32", "bfloat16", "float16"]
CacheChoice = Literal["growing", "ring", "static", "quantized-8", "quantized-4", "offloaded"]
KernelsChoice = Literal["auto", "on", "off"]
QuantizeChoice = Literal["int8", "int4"]
OverflowChoice = Literal["stop", "shift"]
StoredDtype = Literal["float16", "bfloat16", "float32"]
BitsChoice = Literal["8", "4"]

PROMPT = "Prompt"
LENGTH = "Where the text ends"
CHOICE = "How tokens are chosen"
MACHINE = "Model and machine"
OUTPUT = "Output"

_HUGE = 2**63

_T = TypeVar("_T")


def _show_version(value: bool) -> None:
    if value:
        answer = terminal.Answer()
        answer.write(f"llmcli {__version__}")
        answer.end()
        raise typer.Exit


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


def _parser(name: str, convert: Callable[[str], _T], wanted: str) -> Callable[[str], _T]:
    """The parser's own conversions would name neither the option nor the value."""

    def parse(text: str) -> _T:
        try:
            return convert(text)
        except ValueError:
            raise UsageError(
                f"{name} is {printable(repr(text), 60)}; it must be {wanted}",
                hint="leave it out for its default",
            ) from None

    return parse


def _whole(name: str) -> Callable[[str], int]:
    def convert(text: str) -> int:
        value = int(text)
        if abs(value) >= _HUGE:
            raise ValueError
        return value

    return _parser(name, convert, "a whole number below 2**63")


def _number(name: str) -> Callable[[str], float]:
    return _parser(name, float, "a number")


def text_parser(name: str) -> Callable[[str], str]:
    """A parser for any text that is valid UTF-8."""
    return partial(utf8_argument, name)


def number_option(name: str, metavar: str, help: str, panel: str) -> object:  # noqa: A002
    """An option that takes a number."""
    return value_option(name, metavar=metavar, help=help, panel=panel, parser=_number(name))


def whole_option(name: str, metavar: str, help: str, panel: str) -> object:  # noqa: A002
    """An option that takes a whole number."""
    return value_option(name, metavar=metavar, help=help, panel=panel, parser=_whole(name))


def text_option(name: str, metavar: str, help: str, panel: str) -> object:  # noqa: A002
    """An option that takes a text."""
    return value_option(name, metavar=metavar, help=help, panel=panel, parser=text_parser(name))


def one_of(name: str, choices: object) -> Callable[[str], str]:
    """A parser for the values of a Literal."""
    known = get_args(choices)

    def convert(text: str) -> str:
        if text not in known:
            raise ValueError
        return text

    return _parser(name, convert, f"one of {', '.join(known)}")


PromptText = Annotated[
    str | None,
    typer.Argument(
        show_default=False,
        metavar="PROMPT",
        parser=text_parser("the prompt"),
        help="What to answer or to continue; `-` reads standard input. "
        "Piped input is added after it.",
    ),
]
PromptFile = Annotated[
    Path | None,
    value_option("--file", metavar="FILE", help="Read the prompt from a UTF-8 file.", panel=PROMPT),
]
Raw = Annotated[
    bool,
    flag("--raw", help="Continue the text as it is, without the chat template.", panel=PROMPT),
]
System = Annotated[
    str | None,
    value_option(
        "--system",
        metavar="TEXT",
        help="The system message; needs a chat template.",
        panel=PROMPT,
        parser=text_parser("--system"),
    ),
]
Template = Annotated[
    Path | None,
    value_option(
        "--template",
        metavar="FILE",
        help="A jinja chat template in place of the checkpoint's own.",
        panel=PROMPT,
    ),
]
Bos = Annotated[
    bool | None,
    flag(
        "--bos/--no-bos",
        help="Begin a raw prompt with the BOS token, or not [default: as its tokenizer does].",
        panel=PROMPT,
    ),
]
ParseSpecial = Annotated[
    bool,
    flag(
        "--parse-special",
        help="Read control tokens typed in a raw prompt as such, not as text.",
        panel=PROMPT,
    ),
]

MaxNewTokens = Annotated[
    int | None,
    value_option(
        "--max-new-tokens",
        "-n",
        metavar="N",
        help="At most N new tokens [default: the checkpoint's, else 256].",
        panel=LENGTH,
        parser=_whole("--max-new-tokens"),
    ),
]
Stop = Annotated[
    list[str] | None,
    value_option(
        "--stop",
        metavar="TEXT",
        help="End just before this text; may be given several times.",
        panel=LENGTH,
        parser=text_parser("--stop"),
    ),
]
IgnoreEos = Annotated[
    bool,
    flag("--ignore-eos", help="Go on past the checkpoint's own end tokens.", panel=LENGTH),
]

MaxContext = Annotated[
    int | None,
    value_option(
        "--max-context",
        metavar="N",
        help="At most N tokens in the context [default: the model's own].",
        panel=LENGTH,
        parser=_whole("--max-context"),
    ),
]
OverflowOption = Annotated[
    OverflowChoice | None,
    value_option(
        "--overflow",
        metavar="stop|shift",
        help="At the end of the context stop, or drop old tokens and go on [default: stop].",
        panel=LENGTH,
        parser=one_of("--overflow", OverflowChoice),
    ),
]

Strategy = Annotated[
    StrategyChoice | None,
    value_option(
        "--strategy",
        metavar="NAME",
        help="greedy, sample, beam, contrastive, dola, prompt-lookup or speculative [default: "
        "greedy, or what the checkpoint or an option below asks for].",
        panel=CHOICE,
        parser=one_of("--strategy", StrategyChoice),
    ),
]
Temperature = Annotated[
    float | None,
    value_option(
        "--temperature",
        "-t",
        metavar="X",
        help="Above 1 more surprising, below 1 more certain; 0 is greedy.",
        panel=CHOICE,
        parser=_number("--temperature"),
    ),
]
TopK = Annotated[
    int | None,
    value_option(
        "--top-k",
        metavar="K",
        help="Among the K likeliest tokens; 0 is off.",
        panel=CHOICE,
        parser=_whole("--top-k"),
    ),
]
TopP = Annotated[
    float | None,
    value_option(
        "--top-p",
        metavar="P",
        help="Among the likeliest tokens that together reach probability P; 1 is off.",
        panel=CHOICE,
        parser=_number("--top-p"),
    ),
]
MinP = Annotated[
    float | None,
    value_option(
        "--min-p",
        metavar="P",
        help="Among tokens at least P times as likely as the best; 0 is off.",
        panel=CHOICE,
        parser=_number("--min-p"),
    ),
]
RepetitionPenalty = Annotated[
    float | None,
    value_option(
        "--repetition-penalty",
        metavar="X",
        help="Above 1, tokens already seen get less likely; 1 is off.",
        panel=CHOICE,
        parser=_number("--repetition-penalty"),
    ),
]
Seed = Annotated[
    int | None,
    value_option(
        "--seed",
        metavar="N",
        help="Makes sampling repeatable [default: a new one each time; -v shows it].",
        panel=CHOICE,
        parser=_whole("--seed"),
    ),
]

Compare = Annotated[
    str | None,
    value_option(
        "--compare",
        metavar="ARMS",
        help=f"The same prompt in several ways (A,B,C), side by side: {', '.join(ARMS)}. "
        "Some take a value, as in top-p=0.8.",
        panel=CHOICE,
    ),
]

Model = Annotated[
    str | None,
    value_option(
        "--model",
        "-m",
        metavar="MODEL",
        help="A folder, a catalogue name or a hub id OWNER/NAME "
        "[default: $LLMCLI_MODEL, else smollm2].",
        panel=MACHINE,
    ),
]
Device = Annotated[
    str | None,
    value_option(
        "--device",
        metavar="DEVICE",
        help="auto, cpu, cuda, cuda:N or mps [default: auto].",
        panel=MACHINE,
    ),
]
Dtype = Annotated[
    DtypeChoice | None,
    value_option(
        "--dtype",
        metavar="DTYPE",
        help="Compute in auto, float32, bfloat16 or float16 [default: auto].",
        panel=MACHINE,
        parser=one_of("--dtype", DtypeChoice),
    ),
]
Threads = Annotated[
    int | None,
    value_option(
        "--threads",
        metavar="N",
        help="CPU threads [default: one a physical core].",
        panel=MACHINE,
        parser=_whole("--threads"),
    ),
]
Kernels = Annotated[
    KernelsChoice | None,
    value_option(
        "--kernels",
        metavar="auto|on|off",
        help="Steps on a CPU in compiled kernels [default: auto, not for small models].",
        panel=MACHINE,
        parser=one_of("--kernels", KernelsChoice),
    ),
]
Quantize = Annotated[
    QuantizeChoice | None,
    value_option(
        "--quantize",
        metavar="int8|int4",
        help="Hold the weight matrices in 8 or 4 bits [default: as they are stored].",
        panel=MACHINE,
        parser=one_of("--quantize", QuantizeChoice),
    ),
]
KvCache = Annotated[
    bool | None,
    flag(
        "--kv-cache/--no-kv-cache",
        help="Keep keys and values, or compute them anew for each token [default: keep].",
        panel=MACHINE,
    ),
]
Cache = Annotated[
    CacheChoice | None,
    value_option(
        "--cache",
        metavar="KIND",
        help="How keys and values are kept: growing, ring (windowed layers end at their window), "
        "static (all memory at once), quantized-8, quantized-4 or offloaded (to host memory, on "
        "CUDA) [default: ring where the model has windows, else growing].",
        panel=MACHINE,
        parser=one_of("--cache", CacheChoice),
    ),
]

Echo = Annotated[bool, flag("--echo", help="Print the prompt before the answer.", panel=OUTPUT)]
ShowSpecial = Annotated[
    bool,
    flag("--show-special", help="Show special tokens, except end tokens.", panel=OUTPUT),
]
RawOutput = Annotated[
    bool,
    flag("--raw-output", help="Let control codes reach the terminal.", panel=OUTPUT),
]
Json = Annotated[bool, flag("--json", help="Print JSON instead of text.", panel=OUTPUT)]
Logprobs = Annotated[
    int | None,
    value_option(
        "--logprobs",
        metavar="N",
        help="Report each token's logprob and the N likeliest tokens.",
        panel=OUTPUT,
        parser=_whole("--logprobs"),
    ),
]
Receipt = Annotated[
    Path | None,
    value_option(
        "--receipt",
        metavar="FILE",
        help="Write what the run stood on and what came of it, for `llmcli replay FILE`.",
        panel=OUTPUT,
    ),
]
Verbose = Annotated[
    bool,
    flag(
        "--verbose",
        "-v",
        help="Tell on stderr what is used and why, and statistics.",
        panel=OUTPUT,
    ),
]
Debug = Annotated[bool, flag("--debug", help="Show the traceback of an error.")]
Version = Annotated[
    bool,
    typer.Option(
        "--version",
        help="Print the version.",
        callback=_show_version,
        is_eager=True,
        show_default=False,
    ),
]

GgufFile = Annotated[Path, typer.Argument(metavar="FILE", help="A GGUF file.", show_default=False)]
OutDir = Annotated[
    Path, typer.Argument(metavar="OUT_DIR", help="A new folder.", show_default=False)
]
ConvertDtype = Annotated[
    StoredDtype,
    value_option(
        "--dtype",
        metavar="DTYPE",
        help="Write float16, bfloat16 or float32 [default: float16].",
        parser=one_of("--dtype", StoredDtype),
    ),
]
QuantizeSource = Annotated[
    str,
    typer.Argument(
        metavar="SRC",
        help="A folder, a catalogue name or a hub id OWNER/NAME.",
        show_default=False,
    ),
]
QuantizeOut = Annotated[
    Path, typer.Argument(metavar="OUT", help="A new folder.", show_default=False)
]
QuantizeBits = Annotated[
    BitsChoice | None,
    value_option(
        "--bits",
        metavar="8|4",
        help="Bits of a number in the matrices; embedding and head always have 8.",
        parser=one_of("--bits", BitsChoice),
    ),
]
GroupSize = Annotated[
    int | None,
    value_option(
        "--group-size",
        metavar="N",
        help="With --bits 4, how many numbers share a scale and a minimum [default: 32].",
        parser=_whole("--group-size"),
    ),
]
PullName = Annotated[
    str,
    typer.Argument(
        metavar="NAME", help="A catalogue name or a hub id OWNER/NAME.", show_default=False
    ),
]
Revision = Annotated[
    str | None, value_option("--revision", metavar="REV", help="A hub branch, tag or commit.")
]
Force = Annotated[bool, flag("--force", help="Fetch it again although it is here.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Loading:
    """Which checkpoint, and where it runs."""

    model: Model = None
    device: Device = None
    dtype: Dtype = None
    threads: Threads = None
    kernels: Kernels = None
    quantize: Quantize = None
    kv_cache: KvCache = None
    cache: Cache = None

    @property
    def cache_kind(self) -> CacheChoice | Literal["auto", "none"]:
        """As the engine takes it."""
        return "none" if self.kv_cache is False else self.cache or "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompting:
    """How the prompt's text becomes ids."""

    raw: Raw = False
    system: System = None
    template: Template = None
    bos: Bos = None
    parse_special: ParseSpecial = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """How long a text may get, and what happens there."""

    max_context: MaxContext = None
    overflow: OverflowOption = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """What ends the text besides its length."""

    stop: Stop = None
    ignore_eos: IgnoreEos = False
    show_special: ShowSpecial = False
