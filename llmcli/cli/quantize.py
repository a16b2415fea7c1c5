"""llmcli quantize: a checkpoint folder whose matrices are held in 8 or 4 bits, and its cost."""

from __future__ import annotations

from pathlib import Path

from llmcli.checkpoint.packed_form import LARGEST_GROUP
from llmcli.cli import interrupts, options, terminal
from llmcli.cli.bundles import unbundled
from llmcli.cli.sizes import in_bytes
from llmcli.errors import UsageError
from llmcli.spec import INT4_GROUP, PackingKind

_KINDS: dict[str, PackingKind] = {"8": "int8", "4": "int4"}


@unbundled
def quantize(
    *,
    source: options.QuantizeSource,
    out: options.QuantizeOut = None,
    bits: options.QuantizeBits = None,
    group_size: options.GroupSize = None,
    reporting: options.Reporting,
    threads: options.Threads = None,
    debug: options.Debug = False,  # noqa: ARG001
) -> int:
    """Write a checkpoint whose matrices are held in 8 or 4 bits, or measure what that costs."""
    from llmcli.cli.progress import FetchProgress
    from llmcli.cli.quality import QualityReport, read_text
    from llmcli.cli.running import check_loading, find_model

    check_loading(options.Loading(threads=threads))
    group = INT4_GROUP if group_size is None else group_size
    _check(out, bits, group_size, reporting)
    text = read_text(reporting.text)
    with interrupts.ending_at_once():
        import torch

        from llmcli.engine import quantizing
        from llmcli.engine.new_folder import check_new
    if threads is not None:
        torch.set_num_threads(threads)
    if out is not None:
        check_new(out)
    found = find_model(source)
    if group_size is not None:
        quantizing.refuse_wide_groups(found, group_size)
    report = QualityReport(found, text) if reporting.report else None
    kinds: list[PackingKind] = [_KINDS[bits]] if bits else [*_KINDS.values()]
    if out is not None:
        with FetchProgress() as progress:
            done = quantizing.quantize(found, out, kinds[0], group=group, progress=progress)
        terminal.note(f"weights: {in_bytes(done.before)}, now {in_bytes(done.after)}")
    if report is not None:
        if out is not None:
            terminal.note(f"wrote {out}")
        return report.show(kinds, reporting.output or "table", group=group, folder=out)
    answer = terminal.Answer()
    answer.write(str(out))
    answer.end()
    return 0


def _check(
    out: Path | None, bits: str | None, group_size: int | None, reporting: options.Reporting
) -> None:
    """What can be told wrong before anything is looked for."""
    if not reporting.report:
        if out is None:
            raise UsageError(
                "OUT is missing", hint="give a new folder, or --report to measure without writing"
            )
        unread = {"--text": reporting.text, "--output": reporting.output}
        if given := [name for name, value in unread.items() if value is not None]:
            raise UsageError(
                f"{given[0]} is of no use without --report", hint="add --report, or leave it out"
            )
    if out is not None and bits is None:
        raise UsageError("--bits is missing", hint="give --bits 8, or --bits 4 for half of that")
    if group_size is None:
        return
    if bits == "8":
        raise UsageError("--bits 8 does not read --group-size", hint="leave it out, or --bits 4")
    if group_size % 2 or not 2 <= group_size <= LARGEST_GROUP:
        raise UsageError(
            f"--group-size is {group_size}; it must be an even number from 2 to {LARGEST_GROUP}",
            hint=f"leave it out for {INT4_GROUP}",
        )
