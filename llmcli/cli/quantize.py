"""llmcli quantize: a checkpoint folder whose matrices are held in 8 or 4 bits."""

from __future__ import annotations

from llmcli.checkpoint.packed_form import LARGEST_GROUP
from llmcli.cli import interrupts, options, terminal
from llmcli.cli.sizes import in_bytes
from llmcli.errors import UsageError
from llmcli.spec import INT4_GROUP, PackingKind


def quantize(
    source: options.QuantizeSource,
    out: options.QuantizeOut,
    bits: options.QuantizeBits = None,
    group_size: options.GroupSize = None,
    debug: options.Debug = False,  # noqa: ARG001
) -> None:
    """Write a checkpoint whose matrices are held in 8 or 4 bits."""
    from llmcli.cli.progress import FetchProgress
    from llmcli.cli.running import find_model

    if bits is None:
        raise UsageError("--bits is missing", hint="give --bits 8, or --bits 4 for half of that")
    if group_size is not None and bits == "8":
        raise UsageError("--bits 8 does not read --group-size", hint="leave it out, or --bits 4")
    group = INT4_GROUP if group_size is None else group_size
    if group % 2 or not 2 <= group <= LARGEST_GROUP:
        raise UsageError(
            f"--group-size is {group}; it must be an even number from 2 to {LARGEST_GROUP}",
            hint=f"leave it out for {INT4_GROUP}",
        )
    with interrupts.ending_at_once():
        from llmcli.engine.new_folder import check_new
        from llmcli.engine.quantizing import quantize as run
    check_new(out)
    found = find_model(source)
    kind: PackingKind = "int8" if bits == "8" else "int4"
    with FetchProgress() as progress:
        done = run(found, out, kind, group=group, progress=progress)
    terminal.note(f"weights: {in_bytes(done.before)}, now {in_bytes(done.after)}")
    answer = terminal.Answer()
    answer.write(str(out))
    answer.end()
