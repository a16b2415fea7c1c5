"""The check view: do files, config, tokenizer and template fit each other. Must not know torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llmcli.checkpoint.directory import ModelDir
from llmcli.checkpoint.escape import printable, shortlist
from llmcli.checkpoint.plan import LoadPlan
from llmcli.errors import LlmcliError
from llmcli.insight.facts import Facts
from llmcli.insight.findings import Finding
from llmcli.insight.watching import OnProgress
from llmcli.plurals import counted
from llmcli.text.chat_template import ChatTemplate, find_template
from llmcli.text.stop_ids import collect_stop_ids, lost_stop_ids
from llmcli.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Check:
    """All findings in the order of the checks, and how many are bad."""

    name: str
    findings: tuple[Finding, ...]
    errors: int
    warnings: int


def check(
    facts: Facts, directory: ModelDir, *, values: bool, on_progress: OnProgress | None = None
) -> Check:
    """With `values` every weight is read. What is wrong is a finding, never an exception."""
    found = [
        *_config(facts),
        *_files(facts, directory),
        *_weights(facts),
        *_head(facts, values=values),
        *(_values(facts, on_progress) if values else ()),
        *_text(facts, directory),
    ]
    levels = [one.level for one in found]
    return Check(facts.name, tuple(found), levels.count("error"), levels.count("warning"))


def _config(facts: Facts) -> Iterator[Finding]:
    for warning in facts.warnings:
        yield Finding("warning", "config", warning)
    if not facts.warnings:
        yield Finding("ok", "config", f"read as {facts.family}; every key is accounted for")


def _files(facts: Facts, directory: ModelDir) -> Iterator[Finding]:
    for fault in facts.faults:
        yield Finding("error", "files", fault.message)
    stored = facts.stored or {}
    used = {tensor.file.name for tensor in stored.values()}
    if not facts.faults:
        size = sum(tensor.nbytes for tensor in stored.values())
        held = f"{counted(len(used), 'file')}, {counted(len(stored), 'tensor')}, {size:,} bytes"
        text = f"{held}: no gap, no overlap, none cut"
        yield Finding("ok", "files", text)
    idle = sorted({file.name for file in directory.path.glob("*.safetensors")} - used)
    if idle and not facts.faults:
        yield Finding("warning", "files", f"not part of the checkpoint: {shortlist(idle)}")


def _weights(facts: Facts) -> Iterator[Finding]:
    plan, stored = facts.plan, facts.stored or {}
    if plan is None:
        return
    used = {tensor.name for item in plan.assignments for tensor in item.sources}
    used |= {copy.name for copy, _ in plan.repeats}
    number = len(plan.assignments)
    text = f"all {number:,} parameters are made exactly once, each with its right shape"
    yield Finding("ok", "weights", text)
    idle = [name for name in stored if name not in used]
    if idle:
        yield Finding("ok", "weights", f"{len(idle)} {_does(len(idle))} nothing: {shortlist(idle)}")
    kinds = sorted({tensor.dtype for item in plan.assignments for tensor in item.sources})
    if len(kinds) > 1:
        yield Finding("ok", "weights", f"stored in several dtypes: {', '.join(kinds)}")


def _head(facts: Facts, *, values: bool) -> Iterator[Finding]:
    if facts.plan is None:
        return
    if not facts.spec.tie_embeddings:
        yield Finding("ok", "head", "has weights of its own")
    elif not facts.plan.repeats:
        yield Finding("ok", "head", "tied to the embedding; the file holds no copy")
    elif not values:
        yield Finding("ok", "head", "tied, and the file holds a copy; --values compares them")
    else:
        yield from _copies(facts.plan)


def _copies(plan: LoadPlan) -> Iterator[Finding]:
    from llmcli.insight.values import equal_bytes

    for copy, item in plan.repeats:
        source, piece = item.source, item.piece
        plain = not piece.transpose and piece.cut is None and len(item.sources) == 1
        name = printable(copy.name)
        if not plain or (copy.dtype, copy.shape) != (source.dtype, source.shape):
            text = f"tied, but {name} is stored in another form than the embedding; not compared"
            yield Finding("warning", "head", text)
        elif equal_bytes(copy, source):
            yield Finding("ok", "head", f"tied, and its copy {name} equals the embedding")
        else:
            text = f"config.json ties the head, but {name} differs from the embedding; it is used"
            yield Finding("warning", "head", text)


def _values(facts: Facts, on_progress: OnProgress | None) -> Iterator[Finding]:
    from llmcli.insight.values import scan  # numpy, which headers alone do not need

    results = scan((facts.stored or {}).values(), on_progress)
    assignments = facts.plan.assignments if facts.plan is not None else ()
    parts = {tensor.name for item in assignments if item.packed for tensor in item.sources}
    for one in results:
        if one.not_finite:
            values = (
                "1 value that is" if one.not_finite == 1 else f"{one.not_finite:,} values that are"
            )
            text = f"{printable(one.name)} has {values} not finite"
            yield Finding("error", "values", text)
        if one.zero and not (one.name in parts and one.name.endswith(".minimum")):
            yield Finding("warning", "values", f"{printable(one.name)} is all zeros")
    skipped = [one.name for one in results if not one.read and one.name not in parts]
    if skipped:
        yield Finding("warning", "values", f"not numbers that are checked: {shortlist(skipped)}")
    cut = [one.name for one in results if one.cut]
    if cut:
        yield Finding("error", "values", f"missing from the file: {shortlist(cut)}")
    # Codes are whole numbers.
    able = [one for one in results if (one.read or one.name in parts) and not one.cut]
    finite = [one for one in able if not one.not_finite]
    yield Finding("ok", "values", f"{len(finite):,} of {len(results):,} tensors are all finite")


def _text(facts: Facts, directory: ModelDir) -> Iterator[Finding]:
    try:
        tokenizer = Tokenizer.load(directory.path)
    except LlmcliError as error:
        yield Finding("error", "tokenizer", error.message)
        tokenizer = None
    if tokenizer is not None:
        yield _rows(tokenizer.vocab_size, facts.spec.vocab_size)
    template, finding = _template(directory.path)
    yield finding
    if tokenizer is not None:
        yield from _stops(facts, directory, tokenizer, template)


def _rows(entries: int, rows: int) -> Finding:
    if entries > rows:
        text = f"ids go up to {entries - 1:,}, but the embedding has only {rows:,} rows"
        return Finding("error", "tokenizer", text)
    spare = f"; {_spare(rows - entries)} for no token" if rows > entries else ""
    return Finding("ok", "tokenizer", f"{entries:,} ids for {rows:,} rows of the embedding{spare}")


def _does(count: int) -> str:
    return "tensor computes" if count == 1 else "tensors compute"


def _spare(count: int) -> str:
    return "1 row stands" if count == 1 else f"{count:,} rows stand"


def _template(folder: Path) -> tuple[ChatTemplate | None, Finding]:
    try:
        source = find_template(folder)
        template = ChatTemplate(source) if source else None
    except LlmcliError as error:
        return None, Finding("error", "template", error.message)
    if template is None:
        return None, Finding("ok", "template", "there is none: a text is continued, not answered")
    return template, Finding("ok", "template", "compiles")


def _stops(
    facts: Facts, directory: ModelDir, tokenizer: Tokenizer, template: ChatTemplate | None
) -> Iterator[Finding]:
    try:
        defaults: Mapping[str, Any] = directory.generation_config()
        stops = collect_stop_ids(defaults, directory.config, tokenizer, template)
        lost = lost_stop_ids(defaults, directory.config, tokenizer)
    except LlmcliError as error:
        yield Finding("error", "stop ids", error.message)
        return
    for file, token in lost:
        text = f"{token}, named by {file}, is no id, and nothing can end by it"
        yield Finding("warning", "stop ids", text)
    if not stops:
        yield Finding("warning", "stop ids", "nothing names one: an answer ends by length alone")
    for stop in stops:
        text = f"{stop.id} {printable(repr(stop.text))}, named by {', '.join(stop.sources)}"
        if stop.id >= facts.spec.vocab_size:
            text += f", but the last id is {facts.spec.vocab_size - 1}"
            yield Finding("warning", "stop ids", text)
        else:
            yield Finding("ok", "stop ids", text)
