"""bench-cache from its options to its report; Ctrl-C prints what was measured by then."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from llmcli.acquire.resolve import Resolved
from llmcli.bench.arms import check_names
from llmcli.checkpoint.escape import printable
from llmcli.cli import interrupts, terminal
from llmcli.cli.benching.asked import BenchDecoding, Measuring, OutputForm
from llmcli.cli.benching.figure import check_figure, draw
from llmcli.cli.benching.page import print_report
from llmcli.cli.files import write_bytes_whole
from llmcli.cli.options import Loading, Prompting
from llmcli.cli.progress import StepProgress
from llmcli.cli.prompt_input import read_prompt
from llmcli.cli.running import (
    check_loading,
    check_prompting,
    find_model,
    load_found,
    prompt_request,
)
from llmcli.engine.bench_flags import check_read
from llmcli.engine.flags import check_flags
from llmcli.errors import UsageError

if TYPE_CHECKING:
    from llmcli.bench.report import Report
    from llmcli.engine.bench_request import Settled

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
    check_read(decoding.flags(), decoding.strategies, decoding.seed or 0)
    if shown.plot is not None:
        check_figure(shown.plot)
    text = None if prompt is None and file is None else read_prompt(prompt, file)
    resolved = find_model(loading.model)
    settled = _settled(resolved, text, prompting, loading, measuring, decoding)
    if shown.plot is not None and not settled.has_curves:
        raise UsageError(
            "--plot would stay empty: it draws tokens after the first one, of greedy and sample",
            hint="leave it out, or measure --strategy greedy with more --new-tokens",
        )
    engine = load_found(resolved, loading, template=prompting.template)
    from llmcli.engine.benching import Bench

    trial = Bench(engine, settled)
    bar, code = StepProgress("measuring"), 0
    try:
        trial.run(lambda done, total, what: bar(done, total, what))
    except KeyboardInterrupt:
        interrupts.acknowledge()
        code = interrupts.INTERRUPTED
    finally:
        bar.finish()
    report = trial.report()
    print_report(report, shown.output)
    if shown.plot is not None:
        _write_figure(report, shown.plot)
    return code or (1 if measuring.strict and _differs(report) else 0)


def _check(
    prompt: str | None,
    file: Path | None,
    prompting: Prompting,
    loading: Loading,
    measuring: Measuring,
) -> None:
    check_loading(loading)
    check_prompting(prompting)
    check_names(measuring.arms or ("on",))
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


def _settled(
    resolved: Resolved,
    text: str | None,
    prompting: Prompting,
    loading: Loading,
    measuring: Measuring,
    decoding: BenchDecoding,
) -> Settled:
    """The request, with all that can be refused without the weights refused."""
    with interrupts.ending_at_once():
        from llmcli.engine.bench_request import BenchRequest, SmallFiles, settle
        from llmcli.engine.device import choose_device

    files = SmallFiles(resolved.path, template=prompting.template)
    new, ids = decoding.max_new_tokens or _DEFAULT_NEW, None
    if text is not None:
        context = files.spec.context
        ids = files.reader.prompt(prompt_request(prompting, text), context=context).ids
    request = BenchRequest(
        model=resolved.name,
        command=shlex.join(["llmcli", *sys.argv[1:]]),
        flags=decoding.flags(),
        strategies=decoding.strategies,
        arms=tuple(measuring.arms or ("on", "off")),
        prompt_tokens=measuring.prompt_tokens or _lengths(files.spec.context - new),
        prompt_ids=ids,
        new_tokens=new,
        rows=tuple(measuring.batch_size or (1,)),
        repeats=5 if measuring.repeats is None else measuring.repeats,
        warmup=1 if measuring.warmup is None else measuring.warmup,
        seed=decoding.seed or 0,
    )
    return settle(request, files, device=choose_device(loading.device or "auto")[0])


def _lengths(room: int) -> tuple[int, ...]:
    """The usual lengths as far as the context holds them; of a tiny context, half of it."""
    return tuple(one for one in _DEFAULT_LENGTHS if one <= room) or (max(1, room // 2),)


def _write_figure(report: Report, path: Path) -> None:
    """Unless the trial was broken off before there was anything to draw."""
    if any(curve.points for one in report.strategies for curve in one.curves):
        write_bytes_whole(path, draw(report, path.suffix.lower()[1:]))
        terminal.note(f"wrote {printable(str(path))}")
    else:
        terminal.note(f"nothing to draw yet, so {printable(str(path))} was not written")


def _differs(report: Report) -> bool:
    return any(
        not arm.same_ids or (arm.proof is not None and not arm.proof.holds)
        for one in report.strategies
        for case in one.cases
        for arm in case.arms
    )
