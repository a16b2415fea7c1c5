"""Many answers from request to exit code: to every prompt of a file, or several to one.

Must not know tensors.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from llmcli.cli import interrupts, report, terminal
from llmcli.cli.answering import Show
from llmcli.cli.batching import Batching
from llmcli.cli.jobs import Job, describe, make_job, rows_done, setup_lines, statistics_lines
from llmcli.cli.progress import RowsProgress
from llmcli.cli.prompts_file import PromptLine, read_prompts
from llmcli.cli.records import Earlier, RecordFile, check_same, read_earlier
from llmcli.cli.running import Request, load_all
from llmcli.cli.samples import SamplePrinter
from llmcli.errors import GenerationError, LlmcliError

Record = Mapping[str, Any]


@dataclass(slots=True)
class _Course:
    """How far a job has come, an earlier run's part included."""

    job: Job
    done: frozenset[int]
    failed: list[Record]
    finished: int = field(init=False)

    def __post_init__(self) -> None:
        self.finished = len(self.done)


def answer_many(
    request: Request, batching: Batching, read_prompt: Callable[[], str], show: Show
) -> int:
    """0, or 130 where Ctrl-C ended it early. Raises LlmcliError, also where rows failed."""
    if batching.output is None:
        terminal.Answer()  # refuses a closed stdout before anything is loaded
    lines = _lines(batching, read_prompt)
    earlier = read_earlier(batching.output) if batching.resume and batching.output else Earlier()
    if earlier.run is not None and request.flags.seed is None:
        # A run without --seed drew one, and going on is going on with it.
        request = replace(request, flags=replace(request.flags, seed=earlier.run.get("seed")))
    resolved, engine, options = load_all(request)
    settings = engine.settings(request.flags, fresh_seed=secrets.randbelow(2**32))
    _tell(f"warning: {warning}" for warning in settings.warnings)
    job = make_job(
        engine,
        request,
        options,
        settings,
        lines,
        samples=batching.num_samples,
        batch_size=batching.size,
    )
    if batching.prompts is None and isinstance(error := job.requests[0].prompt, LlmcliError):
        raise error
    run: Record = {}
    if batching.output is not None:
        run = describe(resolved, engine, request, settings, job)
        check_same(batching.output, run if earlier.run is None else earlier.run, run)
    failed = [record for record in earlier.records if record.get("error")]
    course = _Course(job, frozenset(rows_done(job, earlier.records)), failed)
    if show.verbose:
        _tell(report.machine_lines(resolved, engine))
        terminal.note(report.cache_line(request, engine, job.rows.cache_kind))
        _tell(report.choice_lines(request, engine, settings, job.rows.processors))
        _tell(setup_lines(job, batching.size, course.done))
    code = _write(course, batching, Earlier(run, size=earlier.size), show)
    if show.verbose:
        _tell(statistics_lines(job))
    if code == 0 and failed:
        raise _failure(job, failed)
    return code


def _lines(batching: Batching, read_prompt: Callable[[], str]) -> list[PromptLine]:
    if batching.prompts is None:
        return [PromptLine(text=read_prompt(), line=1)]
    return read_prompts(batching.prompts, batching.prompts_format)


def _write(course: _Course, batching: Batching, before: Earlier, show: Show) -> int:
    """Run the job, and send each record where it belongs."""
    drawn = batching.output is not None or not terminal.is_terminal(sys.stdout)
    if batching.prompts is None:
        printer = SamplePrinter(len(course.job.requests), as_list=show.json, raw=show.raw_output)
        try:
            return _run(course, printer.add, drawn=drawn)
        finally:
            printer.close()
    if batching.output is None:
        return _run(course, terminal.print_json, drawn=drawn)
    with RecordFile(batching.output, before.size) as file:

        def append(record: Record) -> None:
            first = not course.finished
            file.append({**record, "run": before.run} if first else record)

        code = _run(course, append, drawn=drawn)
    if code == interrupts.INTERRUPTED:
        terminal.note("--resume goes on from here")
    return code


def _run(course: _Course, take: Callable[[Record], None], *, drawn: bool) -> int:
    rows, total = course.job.rows, len(course.job.requests)
    bar = RowsProgress(total, drawn=drawn)

    def show() -> None:
        bar(course.finished, rows.tally.new_tokens, rows.tally.seconds)

    try:
        for result in rows.run(done=course.done, on_step=show):
            record = course.job.record(result)
            with interrupts.held():
                take(record)
                course.finished += 1
                if record["error"]:
                    course.failed.append(record)
            show()
    except KeyboardInterrupt:
        interrupts.acknowledge()
        bar.finish()
        terminal.note(f"interrupted: {course.finished} of {total} answers are complete")
        return interrupts.INTERRUPTED
    finally:
        bar.finish()
    return 0


def _failure(job: Job, failed: list[Record]) -> GenerationError:
    first = failed[0]
    name = "" if first["id"] is None else f" (id {first['id']!r})"
    return GenerationError(
        f"{len(failed)} of {len(job.requests)} answers failed; the first is that of prompt "
        f"{first['index']}{name}: {first['error']}",
        hint="every other answer is complete; a record's `error` says why it has failed",
    )


def _tell(lines: Iterable[str]) -> None:
    for line in lines:
        terminal.note(line)
