"""The options of the commands that fetch, convert or quantise a checkpoint."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from llmcli.cli.options.making import flag, one_of, value_option, whole_parser

StoredDtype = Literal["float16", "bfloat16", "float32"]
BitsChoice = Literal["8", "4"]
ReportForm = Literal["table", "markdown", "csv", "json"]

REPORT = "What it costs"

GgufFile = Annotated[Path, typer.Argument(metavar="FILE", help="A GGUF file.", show_default=False)]
OutDir = Annotated[
    Path, typer.Argument(metavar="OUT_DIR", help="A new folder.", show_default=False)
]
ConvertDtype = Annotated[
    StoredDtype | None,
    value_option(
        "--dtype",
        metavar="DTYPE",
        help="Write float16, bfloat16 or float32 [default: float16; with --keep-quantized what "
        "the file has].",
        parser=one_of("--dtype", StoredDtype),
    ),
]
KeepQuantized = Annotated[
    bool,
    flag(
        "--keep-quantized",
        help="Keep the blocks of Q8_0, Q6_K, Q5_0, Q4_1 and Q4_0 as they are; --dtype is for "
        "the rest.",
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
    Path | None,
    typer.Argument(
        metavar="OUT",
        help="A new folder; left out, --report measures and nothing is written.",
        show_default=False,
    ),
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
        parser=whole_parser("--group-size"),
    ),
]
_Report = Annotated[
    bool,
    flag(
        "--report",
        help="Measure what it costs against float32 on a text: KL divergence and perplexity. "
        "Without OUT and --bits both ways side by side.",
        panel=REPORT,
    ),
]
_ReportText = Annotated[
    Path | None,
    value_option(
        "--text",
        metavar="FILE",
        help="The text of --report, or - for standard input [default: some 500 words of English "
        "that are built in].",
        panel=REPORT,
    ),
]
_ReportOutput = Annotated[
    ReportForm | None,
    value_option(
        "--output",
        metavar="FORM",
        help="table, markdown, csv or json [default: table].",
        panel=REPORT,
        parser=one_of("--output", ReportForm),
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
class Reporting:
    """Whether quantize reports what the packing costs, on which text, in which form."""

    report: _Report = False
    text: _ReportText = None
    output: _ReportOutput = None
