"""One answer from request to exit code: it streams, is reported on, and survives interruption.

Must not know tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from llmcli.cli import interrupts, report, terminal
from llmcli.cli.explaining import tell_steps
from llmcli.cli.files import check_target
from llmcli.cli.receipts import write_receipt
from llmcli.cli.running import Request, Run, start
from llmcli.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Show:
    """What is printed besides, or instead of, the answer."""

    echo: bool = False
    json: bool = False
    raw_output: bool = False
    verbose: bool = False

    def __post_init__(self) -> None:
        for name, given in (("--echo", self.echo), ("--raw-output", self.raw_output)):
            if self.json and given:
                raise UsageError(
                    f"--json does not read {name}",
                    hint=f"leave {name} out: the object holds prompt and text, safely escaped",
                )


def answer(request: Request, read_prompt: Callable[[], str], show: Show) -> int:
    """0, or 130 where Ctrl-C ended the text early. Raises LlmcliError."""
    output = terminal.Answer(raw=show.raw_output)
    if request.receipt is not None:
        check_target("--receipt", request.receipt, only='"llmcli_receipt"', what="receipt")
    run = start(request, read_prompt())
    if show.verbose:
        _tell(report.setup_lines(run))
    several = (request.flags.num_return or 1) > 1
    code = _stream(run, None if show.json or several else output, echo=show.echo)
    if show.json:
        terminal.print_json(report.as_json(run))
    else:
        if several and code == 0:
            output.write("\n".join(report.blocks(run, echo=show.echo)))
            output.end()
        if request.logprobs is not None:
            _tell(report.logprob_lines(run))
        if (steps := run.generation.explanation) is not None:
            tell_steps(steps, run.engine.tokenizer.token_text)
    if show.verbose:
        _tell(report.statistics_lines(run))
    if run.kept is not None and code == 0:
        run.kept.save(run.engine)
    if request.receipt is not None:
        if code:
            terminal.note("interrupted: no receipt is written")
        else:
            write_receipt(run, request.receipt)
    return code


def _tell(lines: Iterable[str]) -> None:
    for line in lines:
        terminal.note(line)


class _Shown:
    """What of the text has gone out, so that an interruption loses and doubles nothing."""

    def __init__(self, output: terminal.Answer | None) -> None:
        self._output = output
        self.length = 0

    def add(self, piece: str) -> None:
        with interrupts.held():
            if self._output is not None:
                self._output.write(piece)
            self.length += len(piece)

    def end(self) -> None:
        if self._output is not None:
            self._output.end()


def _stream(run: Run, output: terminal.Answer | None, *, echo: bool) -> int:
    """Write the text as it comes. Whatever stops it, what was generated is written."""
    generation, shown = run.generation, _Shown(output)
    try:
        if echo and output is not None:
            output.write(generation.prompt_text)
        for piece in generation:
            shown.add(piece)
    except (terminal.OutputError, terminal.ReaderGoneError):
        raise
    except BaseException as error:
        interrupts.acknowledge()
        generation.finish()
        if generation.text or isinstance(error, KeyboardInterrupt):
            shown.add(generation.text[shown.length :])
            shown.end()
        if not isinstance(error, KeyboardInterrupt):
            raise
        return interrupts.INTERRUPTED
    finally:
        for bar in run.bars:
            bar.finish()
    shown.end()
    return 0
