"""bench-cache from its options to its report; Ctrl-C prints what was measured by then."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from llmcli.checkpoint.escape import printable
from llmcli.cli import interrupts, terminal
from llmcli.cli.benching import plot, rows, wording
from llmcli.cli.benching.asked import BenchDecoding, Measuring, OutputForm
from llmcli.cli.benching.figure import check_figure, draw
from llmcli.cli.files import write_bytes_whole
from llmcli.cli.options import Loading, Prompting
from llmcli.cli.progress import StepProgress
from llmcli.cli.prompt_input import read_prompt
from llmcli.cli.running import check_loading, load_engine
from llmcli.engine.flags import check_flags
from llmcli.errors import UsageError

if TYPE_CHECKING:
    from llmcli.bench.report import Report
    from llmcli.engine.benching import BenchRequest
    from llmcli.engine.engine import Engine

_DEFAULT_LENGTHS = (32, 128, 512)
_DEFAULT_NEW = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """Where and how the report goes out."""

    output: OutputForm
    plot: Path | None


def bench(
    prompt: str | None,
    file: Path | None,
    *,
    prompting: Prompting,
    loading: Loading,
    measuring: Measuring,
    decoding: BenchDecoding,
    shown: Shown,
) -> int:
    """0; 1 with --strict where an arm differs; 130 where Ctrl-C ended it early."""
    _check(prompt, file, prompting, loading, measuring)
    check_flags(decoding.flags())
    if shown.plot is not None:
        check_figure(shown.plot)
    text = None if prompt is None and file is None else read_prompt(prompt, file)
    resolved, engine = load_engine(loading)
    from llmcli.engine.benching import Bench

    request = _request(engine, resolved.name, text, prompting, measuring, decoding)
    trial = Bench(engine, request)
    bar, code = StepProgress("measuring"), 0
    try:
        trial.run(lambda done, total, what: bar(done, total, what))
    except KeyboardInterrupt:
        interrupts.acknowledge()
        code = interrupts.INTERRUPTED
    finally:
        bar.finish()
    report = trial.report()
    _print(report, shown.output)
    if shown.plot is not None:
        write_bytes_whole(shown.plot, draw(report, shown.plot.suffix.lower()[1:]))
        terminal.note(f"wrote {printable(str(shown.plot))}")
    return code or (1 if measuring.strict and _differs(report) else 0)


def check_alone(given: bool) -> None:
    """Raise UsageError where options of a measurement stand beside --compare."""
    if given:
        raise UsageError(
            "--compare measures nothing and reads --output alone",
            hint="leave the other options out, or leave --compare out and measure",
        )


def compare_files(paths: tuple[Path, Path], output: OutputForm | None) -> int:
    """Two reports side by side on stdout."""
    from dataclasses import asdict

    from llmcli.bench.compare import compare

    if output not in (None, "table", "json"):
        raise UsageError(f"--compare does not write --output {output}", hint="use table or json")
    first, second = (_read(path) for path in paths)
    names = printable(str(paths[0])), printable(str(paths[1]))
    found = compare(first, second, names)
    if output == "json":
        terminal.print_json(asdict(found))
    else:
        _write(list(wording.compared_lines(found, names, terminal.width(sys.stdout))))
    return 0


def _check(
    prompt: str | None,
    file: Path | None,
    prompting: Prompting,
    loading: Loading,
    measuring: Measuring,
) -> None:
    check_loading(loading)
    given = prompt is not None or file is not None
    if given and measuring.prompt_tokens is not None:
        raise UsageError(
            "a prompt and --prompt-tokens were both given", hint="leave one of them out"
        )
    if not given and prompting != Prompting():
        raise UsageError(
            "random prompts do not read the options of a prompt's text",
            hint="give a PROMPT, or leave --raw, --system, --bos, --parse-special out",
        )
    if loading.kv_cache is not None or loading.cache is not None:
        raise UsageError(
            "--kv-cache and --cache do not choose what is measured",
            hint="--arms on,off,quantized-8 names the caches that take turns",
        )


def _request(
    engine: Engine,
    model: str,
    text: str | None,
    prompting: Prompting,
    measuring: Measuring,
    decoding: BenchDecoding,
) -> BenchRequest:
    from llmcli.engine.benching import BenchRequest
    from llmcli.engine.prompt import PromptRequest

    new = decoding.max_new_tokens or _DEFAULT_NEW
    ids = None
    if text is not None:
        ids = engine.prompt(
            PromptRequest(
                text=text,
                system=prompting.system,
                mode="raw" if prompting.raw else "auto",
                bos=prompting.bos,
                parse_special=prompting.parse_special,
            )
        ).ids
    return BenchRequest(
        model=model,
        command=shlex.join(["llmcli", *sys.argv[1:]]),
        flags=decoding.flags(),
        strategies=decoding.strategies,
        arms=tuple(measuring.arms or ("on", "off")),
        prompt_tokens=measuring.prompt_tokens or _lengths(engine.loaded.spec.context - new),
        prompt_ids=ids,
        new_tokens=new,
        rows=tuple(measuring.batch_size or (1,)),
        repeats=5 if measuring.repeats is None else measuring.repeats,
        warmup=1 if measuring.warmup is None else measuring.warmup,
        seed=decoding.seed or 0,
    )


def _lengths(room: int) -> tuple[int, ...]:
    """The usual lengths as far as the context holds them; of a tiny context, half of it."""
    return tuple(one for one in _DEFAULT_LENGTHS if one <= room) or (max(1, room // 2),)


def _print(report: Report, form: OutputForm) -> None:
    if form == "json":
        terminal.print_json(report.as_json())
    elif form == "jsonl":
        for row in rows.flat_rows(report):
            terminal.print_json(row)
    elif form == "csv":
        _write(rows.as_csv(report).splitlines())
    else:
        _write(_page(report, markdown=form == "markdown"))


def _page(report: Report, *, markdown: bool) -> list[str]:
    width = None if markdown else terminal.width(sys.stdout)
    bullet, head = ("* ", "## ") if markdown else ("", "")
    lines = [bullet + line for line in wording.machine_lines(report)]
    for one in report.strategies:
        for case in one.cases:
            table = wording.case_markdown(case) if markdown else wording.case_table(case, width)
            lines += ["", head + wording.case_title(one, case), *([""] if markdown else []), *table]
            lines += ["", *(bullet + line for line in wording.case_lines(case, report))]
        drawn = plot.plot(one.curves, width or 80, ascii_only=not _can_draw(len(one.curves)))
        fence = ["```"] if markdown and drawn else []
        lines += ["", *fence, *drawn, *fence, ""] if drawn else [""]
        lines += [bullet + line for line in wording.crossover_lines(one)]
    return lines


def _can_draw(count: int) -> bool:
    return not terminal.is_terminal(sys.stdout) or terminal.encodes(
        sys.stdout, plot.signs_needed(count)
    )


def _differs(report: Report) -> bool:
    return any(
        not arm.same_ids or (arm.proof is not None and not arm.proof.holds)
        for one in report.strategies
        for case in one.cases
        for arm in case.arms
    )


def _write(lines: list[str]) -> None:
    if not lines:
        return
    answer = terminal.Answer()
    answer.write("\n".join(lines))
    answer.end()


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UsageError(
            f"--compare {printable(str(path))} cannot be read: {reason}", hint="check the path"
        ) from error
