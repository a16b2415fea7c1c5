"""The plan view: sizes in each dtype, what is free, and what would make it fit."""

from __future__ import annotations

from typing import Literal

from llmcli.checkpoint.packed_form import refuse_quantizing
from llmcli.cli.columns import folded, pairs, table
from llmcli.cli.inspecting.asked import Asked
from llmcli.cli.inspecting.drawing import Drawing
from llmcli.cli.inspecting.subject import Subject
from llmcli.cli.inspecting.svg import Svg, bars
from llmcli.cli.sizes import in_bytes
from llmcli.insight.bounds import check_between
from llmcli.insight.holding import AS_STORED, Computing, stored_dtype
from llmcli.insight.kernel_work import Kernels
from llmcli.insight.memory_plan import Machine, MemoryPlan, plan_memory
from llmcli.plurals import counted
from llmcli.spec import default_kind

_USUAL = 4096


def _compute(subject: Subject, asked: Asked) -> MemoryPlan:
    longest = subject.facts.spec.context
    for length in asked.context or ():
        check_between("--context", length, 1, longest)
    context = max(asked.context or [min(_USUAL, longest)])
    quantize = subject.loading.quantize
    refuse_quantizing(subject.facts.config, quantize, subject.facts.name)
    machine = _machine(subject)
    kind = subject.loading.cache_kind
    return plan_memory(
        subject.facts,
        machine,
        context=context,
        kind=default_kind(subject.facts.spec) if kind == "auto" else kind,
        quantize=quantize,
    )


def _machine(subject: Subject) -> Machine:
    """As a run would choose: this asks torch, but reads no weight."""
    import torch

    from llmcli.engine.device import choose_device, choose_dtype
    from llmcli.engine.foreseen import Steps
    from llmcli.insight.machine import free_memory, read_bandwidth

    loading = subject.loading
    if loading.threads is not None:
        torch.set_num_threads(loading.threads)
    device, device_reason = choose_device(loading.device or "auto")
    stored = getattr(torch, stored_dtype(subject.facts))
    form, wanted = subject.facts.form, loading.dtype or "auto"
    held: Literal["file", "no"] = "no" if form is None else "file"
    dtype, dtype_reason = choose_dtype(wanted, device, stored, packed=held)
    other, other_reason = choose_dtype(wanted, device, stored, packed="loading")
    steps = Steps(subject.facts.spec, device, loading.kernels or "auto")
    most = steps.most_tokens()
    plain, packed = (
        Computing(str(one).removeprefix("torch."), wanted == "auto" and steps.in_kernels(one))
        for one in (dtype, other)
    )
    free = free_memory(device)
    room = 64 << 20 if free is None else max(free // 8, 1 << 20)
    return Machine(
        device=str(device),
        device_reason=device_reason,
        dtype=plain.dtype,
        dtype_reason=other_reason if loading.quantize else dtype_reason,
        keeps_narrow=plain.keeps_narrow,
        quantized=packed,
        steps=steps.told(other if loading.quantize else dtype),
        kernels=Kernels(torch.get_num_threads(), most) if most else None,
        free=free,
        bandwidth=read_bandwidth(device, dtype, most_bytes=room),
    )


def _lines(found: MemoryPlan, width: int | None) -> list[str]:
    machine = found.machine
    text = f"a text of {counted(found.context, 'token')} of at most {found.longest:,} (--context)"
    lines = pairs(
        [
            ("device", f"{machine.device} ({machine.device_reason})"),
            ("dtype", f"{found.widths[0].dtype} ({machine.dtype_reason})"),
            ("steps", machine.steps),
            ("for", text + (", without a KV cache" if found.kind == "none" else "")),
            ("weights", f"{in_bytes(found.weights)} ({_held(found)})"),
            ("KV cache", f"{in_bytes(found.cache)} ({found.kind})"),
            ("work", f"about {in_bytes(found.work)} (estimate)"),
            ("peak", f"about {in_bytes(found.peak)} besides Python and torch (estimate)"),
            ("free", "not known" if machine.free is None else in_bytes(machine.free)),
            ("so", found.advice),
            ("speed", _speed(found)),
        ],
        width,
    )
    rows = [
        (
            one.dtype,
            one.matrices,
            in_bytes(one.weights),
            in_bytes(one.cache),
            in_bytes(one.peak),
            {True: "yes", False: "no", None: "-"}[one.fits],
        )
        for one in found.widths
    ]
    header = ("DTYPE", "MATRICES", "WEIGHTS", "KV CACHE", "PEAK", "FITS")
    note = "Peaks and speed are estimates; nothing but headers was read."
    return [*lines, "", *table(header, rows, width, left=(0, 1)), "", *folded(note, width)]


def _held(found: MemoryPlan) -> str:
    """How the matrices are held, which are nearly all of them."""
    return (
        f"matrices {AS_STORED}" if found.matrices == AS_STORED else f"matrices in {found.matrices}"
    )


def _speed(found: MemoryPlan) -> str:
    if found.tokens_per_second is None or found.machine.bandwidth is None:
        return "not estimated without a KV cache"
    return (
        f"at most about {_rate(found.tokens_per_second)} tokens a second (estimate): a step reads "
        f"{in_bytes(found.read_per_token)}, this machine {in_bytes(found.machine.bandwidth)} a "
        f"second in a probe"
    )


def _rate(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"


def _pictures(found: MemoryPlan) -> list[Svg]:
    rows = [
        (f"{one.dtype}, {one.matrices}", float(one.peak), in_bytes(one.peak))
        for one in found.widths
    ]
    if found.machine.free is not None:
        rows.append(("free now", float(found.machine.free), in_bytes(found.machine.free)))
    return [bars(f"{found.name}: peak memory at {found.context:,} tokens (estimate)", rows)]


DRAWING = Drawing(compute=_compute, lines=_lines, pictures=_pictures)
