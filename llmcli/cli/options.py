"""Every option, declared once, for all commands that take it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from llmcli import __version__
from llmcli.cli import terminal

StrategyChoice = Literal["greedy", "sample"]
DtypeChoice = Literal["auto", "float32", "bfloat16", "float16"]


def _show_version(value: bool) -> None:
    if value:
        answer = terminal.Answer()
        answer.write(f"llmcli {__version__}")
        answer.end()
        raise typer.Exit


def _option(*names: str, help: str, panel: str | None = None, **more: object) -> object:  # noqa: A002
    return typer.Option(*names, help=help, rich_help_panel=panel, show_default=False, **more)  # type: ignore[arg-type]


PromptText = Annotated[
    str | None,
    typer.Argument(
        show_default=False,
        help="What to answer or to go on from; `-` reads standard input. "
        "What is piped in is added after it.",
    ),
]
PromptFile = Annotated[Path | None, _option("--file", help="Read the prompt from a UTF-8 file.")]
Model = Annotated[
    str | None,
    _option(
        "--model",
        "-m",
        help="A folder, a catalogue name or a hub id OWNER/NAME "
        "[default: $LLMCLI_MODEL, else smollm2].",
    ),
]
Raw = Annotated[
    bool, _option("--raw", help="Continue the text as it is, without the chat template.")
]
System = Annotated[
    str | None, _option("--system", help="The system message, where the template has one.")
]
Bos = Annotated[
    bool | None,
    _option(
        "--bos/--no-bos",
        help="Begin a raw prompt with the BOS token, or not [default: as its tokenizer does].",
    ),
]
ParseSpecial = Annotated[
    bool,
    _option(
        "--parse-special",
        help="Let control tokens typed in a raw prompt count as such, instead of as text.",
    ),
]
MaxNewTokens = Annotated[
    int | None,
    _option("--max-new-tokens", "-n", help="New tokens at most [default: 256]."),
]
Temperature = Annotated[
    float | None,
    _option("--temperature", "-t", help="Flatten (>1) or sharpen (<1) the choice; 0 is greedy."),
]
TopK = Annotated[
    int | None, _option("--top-k", help="Sample among the K likeliest tokens; 0 is off.")
]
TopP = Annotated[
    float | None,
    _option("--top-p", help="Sample among the likeliest tokens that reach mass P; 1 is off."),
]
MinP = Annotated[
    float | None,
    _option("--min-p", help="Sample among tokens at least P times as likely as the best one."),
]
RepetitionPenalty = Annotated[
    float | None,
    _option("--repetition-penalty", help="Make tokens already seen less likely; 1 is off."),
]
Seed = Annotated[int | None, _option("--seed", help="Seed of the sampler; fresh if left out.")]
Stop = Annotated[
    list[str] | None,
    _option("--stop", help="End the text before this string; may be given several times."),
]
IgnoreEos = Annotated[
    bool, _option("--ignore-eos", help="Go on past the checkpoint's own end tokens.")
]
ShowSpecial = Annotated[
    bool, _option("--show-special", help="Show special tokens (but end tokens) in the text.")
]
Strategy = Annotated[
    StrategyChoice | None,
    _option(
        "--strategy",
        help="How tokens are chosen [default: greedy, or sample where generation_config.json "
        "or a sampling option asks for it].",
    ),
]
KvCache = Annotated[
    bool | None,
    _option(
        "--kv-cache/--no-kv-cache",
        help="Keep keys and values, or compute all of them again for each token [default: keep].",
    ),
]
Device = Annotated[
    str | None,
    _option("--device", help="auto, cpu, cuda, cuda:N or mps [default: auto]."),
]
Dtype = Annotated[
    DtypeChoice | None,
    _option("--dtype", help="The numbers to compute in [default: auto]."),
]
Threads = Annotated[
    int | None, _option("--threads", help="CPU threads [default: one a physical core].")
]
Echo = Annotated[bool, _option("--echo", help="Print the prompt before its continuation.")]
Json = Annotated[bool, _option("--json", help="Print one JSON object instead of the text.")]
Logprobs = Annotated[
    int | None,
    _option("--logprobs", help="Report each token's logprob and the N likeliest tokens."),
]
RawOutput = Annotated[
    bool, _option("--raw-output", help="Let control codes in the text reach the terminal.")
]
Verbose = Annotated[
    bool,
    _option("--verbose", "-v", help="Tell on stderr what is used and why, and statistics."),
]
Debug = Annotated[bool, _option("--debug", help="Show the traceback of an error.")]
Version = Annotated[
    bool,
    _option("--version", help="Print the version.", callback=_show_version, is_eager=True),
]
