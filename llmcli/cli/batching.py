"""Options for many answers at once: prompts from a file, several samples, where records go."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from llmcli.checkpoint.escape import printable
from llmcli.cli.options import flag, one_of, value_option, whole_option
from llmcli.errors import UsageError

PANEL = "Many answers at once"

PromptsFormat = Literal["text", "jsonl"]

_DEFAULT_SIZE = 8

PromptsFile = Annotated[
    Path | None,
    value_option(
        "--prompts",
        metavar="FILE",
        help="Answer every prompt of a file, one a line; `-` reads standard input. Each answer "
        "is a line of JSON.",
        panel=PANEL,
    ),
]
FormatOfPrompts = Annotated[
    PromptsFormat | None,
    value_option(
        "--prompts-format",
        metavar="FORMAT",
        help="text (a line is a prompt) or jsonl (a line is an object with `prompt`) "
        "[default: jsonl where the name ends in .jsonl, else text].",
        panel=PANEL,
        parser=one_of("--prompts-format", PromptsFormat),
    ),
]
OutputFile = Annotated[
    Path | None,
    value_option(
        "--output",
        metavar="FILE",
        help="Append each record to this file as soon as it is there.",
        panel=PANEL,
    ),
]
Resume = Annotated[
    bool, flag("--resume", help="Go on with a run that wrote this --output before.", panel=PANEL)
]
Overwrite = Annotated[
    bool, flag("--overwrite", help="Begin --output anew where it exists.", panel=PANEL)
]
BatchSize = Annotated[
    int | None,
    whole_option(
        "--batch-size", "N", f"Compute N answers at a time [default: {_DEFAULT_SIZE}].", PANEL
    ),
]
NumSamples = Annotated[
    int | None,
    whole_option("--num-samples", "N", "Draw N answers to each prompt, of seeds in a row.", PANEL),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Batching:
    """None (or False) where the command line says nothing."""

    prompts: PromptsFile = None
    prompts_format: FormatOfPrompts = None
    output: OutputFile = None
    resume: Resume = False
    overwrite: Overwrite = False
    batch_size: BatchSize = None
    num_samples: NumSamples = None

    @property
    def size(self) -> int:
        return _DEFAULT_SIZE if self.batch_size is None else self.batch_size

    def asked(self, **beside: bool) -> bool:
        """Whether there is more than one answer to give.

        `beside` tells which other options were given that only a single answer reads.
        Raises UsageError for those, and for options that contradict each other.
        """
        if self.prompts is None and self.num_samples is None:
            self._refuse_without_prompts()
            if self.batch_size is not None:
                raise UsageError(
                    "--batch-size has no effect on one answer",
                    hint="add --prompts or --num-samples",
                )
            return False
        what = "--num-samples" if self.prompts is None else "--prompts"
        if self.prompts is None:
            self._refuse_without_prompts()
        for name, given in beside.items():
            if given and not (what == "--num-samples" and name in _READ_BY_SAMPLES):
                shown = "a prompt" if name == "prompt" else f"--{name.replace('_', '-')}"
                raise UsageError(f"{what} does not read {shown}", hint="leave one of them out")
        self._check_numbers()
        self._check_output()
        return True

    def _refuse_without_prompts(self) -> None:
        for name in ("prompts_format", "output", "resume", "overwrite"):
            if getattr(self, name):
                shown = f"--{name.replace('_', '-')}"
                raise UsageError(
                    f"{shown} has no effect without --prompts", hint="add --prompts FILE"
                )

    def _check_numbers(self) -> None:
        for name, value in (
            ("--batch-size", self.batch_size),
            ("--num-samples", self.num_samples),
        ):
            if value is not None and value < 1:
                raise UsageError(f"{name} is {value}; it must be at least 1", hint="leave it out")

    def _check_output(self) -> None:
        if self.output is None:
            for name, given in (("--resume", self.resume), ("--overwrite", self.overwrite)):
                if given:
                    raise UsageError(f"{name} has no effect without --output", hint="add --output")
            return
        shown = printable(str(self.output))
        if self.resume and self.overwrite:
            raise UsageError("--resume contradicts --overwrite", hint="leave one of them out")
        if not self.output.parent.is_dir():
            raise UsageError(
                f"--output {shown}: there is no folder {printable(str(self.output.parent))}",
                hint="make the folder first",
            )
        if not self.output.exists():
            return
        if not self.output.is_file():
            raise UsageError(
                f"--output {shown} is not a file",
                hint="give a file, or leave --output out for standard output",
            )
        if (
            self.prompts is not None
            and self.prompts.exists()
            and self.output.samefile(self.prompts)
        ):
            raise UsageError(f"--output {shown} is the file of the prompts", hint="name another")
        if self.output.stat().st_size and not (self.resume or self.overwrite):
            raise UsageError(
                f"--output {shown} exists already",
                hint="--resume goes on with it, --overwrite begins anew",
            )


_READ_BY_SAMPLES = ("prompt", "file", "json", "raw_output")
