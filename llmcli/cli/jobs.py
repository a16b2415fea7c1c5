"""A job: every answer that one command asks for, as rows for the engine, and as records after.

Sample j of prompt i is row i * samples + j. Must not know tensors, nor where records go.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from llmcli import __version__
from llmcli.acquire.resolve import Resolved
from llmcli.cli.hashing import hashed
from llmcli.cli.prompts_file import PromptLine
from llmcli.cli.running import Request, prompt_request
from llmcli.errors import LlmcliError, TemplateError, UsageError

if TYPE_CHECKING:
    from llmcli.engine.engine import Engine
    from llmcli.engine.options import GenerateOptions
    from llmcli.engine.prompt import Prompt
    from llmcli.engine.row import RowRequest, RowResult
    from llmcli.engine.rows import Rows
    from llmcli.engine.settings import Settings

_HIGHEST_SEED = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Job:
    """`samples` is None where one answer a prompt is wanted, and records count none."""

    lines: Sequence[PromptLine]
    samples: int | None
    requests: Sequence[RowRequest]
    rows: Rows

    def record(self, result: RowResult) -> dict[str, Any]:
        """What is told of one answer."""
        index, sample = divmod(result.row, self.samples or 1)
        line, request = self.lines[index], self.requests[result.row]
        ids = () if isinstance(request.prompt, LlmcliError) else request.prompt.ids
        return {
            "index": index,
            **({} if self.samples is None else {"sample": sample}),
            "id": line.id,
            "prompt": line.text,
            "text": result.text,
            "ids": list(result.ids),
            "finish_reason": result.finish_reason,
            "stop_string": result.stop_string,
            "prompt_tokens": len(ids),
            "new_tokens": len(result.ids),
            "seed": request.seed,
            "error": result.error.message if result.error else None,
        }

    def row(self, record: Mapping[str, Any]) -> int | None:
        """The row that a record is of; None where this job has no such row."""
        index, sample = record["index"], record.get("sample", 0)
        samples = self.samples or 1
        known = isinstance(sample, int) and 0 <= index < len(self.lines) and 0 <= sample < samples
        return index * samples + sample if known else None


def make_job(
    engine: Engine,
    request: Request,
    options: GenerateOptions,
    settings: Settings,
    lines: Sequence[PromptLine],
    *,
    samples: int | None,
    batch_size: int,
) -> Job:
    """Everything before the first token. Raises UsageError for what no row can be made of."""
    from llmcli.engine.row import RowRequest
    from llmcli.engine.rows import Rows, draws

    drawn = draws(settings)
    if samples is not None and not drawn:
        raise UsageError(
            f"--num-samples needs sampling: strategy {settings.strategy} always says the same",
            hint="add --temperature 0.8",
        )
    requests = []
    for index, line in enumerate(lines):
        prompt = _prompt(engine, request, line)
        if line.seed is not None and not drawn:
            raise UsageError(
                f"line {line.line} gives a seed, which strategy {settings.strategy} does not read",
                hint="leave it out, or use --strategy sample",
            )
        seed = line.seed
        if seed is None and drawn:
            assert settings.params.seed is not None
            seed = settings.params.seed + index
        for sample in range(samples or 1):
            own = None if seed is None else seed + sample
            if own is not None and own > _HIGHEST_SEED:
                raise UsageError(
                    f"seed {seed} leaves no seed for sample {sample} of line {line.line}; the "
                    f"highest is {_HIGHEST_SEED}",
                    hint="take a smaller seed",
                )
            most = settings.max_new_tokens if line.max_new_tokens is None else line.max_new_tokens
            requests.append(RowRequest(prompt=prompt, seed=own, max_new_tokens=most))
    rows = Rows(engine, requests, options, settings, batch_size=batch_size)
    return Job(lines, samples, requests, rows)


def _prompt(engine: Engine, request: Request, line: PromptLine) -> Prompt | LlmcliError:
    """The prompt, or why this line has none; what concerns all lines is raised."""
    asked = prompt_request(request.prompting, line.text)
    if line.system is not None:
        asked = replace(asked, system=line.system)
    try:
        return engine.prompt(asked, max_context=request.context.max_context)
    except TemplateError as error:
        if engine.template is None:
            raise
        return error
    except UsageError as error:
        if line.system is None:
            raise
        raise UsageError(f"line {line.line}: {error.message}", hint=error.hint) from None
    except LlmcliError as error:
        return error


def describe(
    resolved: Resolved, engine: Engine, request: Request, settings: Settings, job: Job
) -> dict[str, Any]:
    """All that shapes the records, by name, for a later run to compare with."""
    from llmcli.cache import LOSSY
    from llmcli.engine.identity import fingerprint

    params = asdict(settings.params) | {"seed": None}
    kind = job.rows.cache_kind
    return {
        "version": __version__,
        "model": f"{resolved.name} {fingerprint(hashed(resolved))}",
        "dtype": str(engine.loaded.decoder.dtype).removeprefix("torch."),
        "quantize": engine.loaded.quantized,
        "cache": kind if kind in LOSSY else "exact",
        "prompts": _digest([asdict(line) for line in job.lines]),
        "samples": job.samples,
        "seed": settings.params.seed if any(one.seed is not None for one in job.requests) else None,
        "strategy": settings.strategy,
        "max_new_tokens": settings.max_new_tokens,
        "sampling": {name: value for name, value in params.items() if name != "seed"},
        "options": dict(settings.options),
        "context": {"max": request.context.max_context, "overflow": request.context.overflow},
        "negative_prompt": request.flags.negative_prompt,
        "draft_model": request.flags.draft_model,
        "grammar": None if request.grammar is None else asdict(request.grammar),
        "stop": list(request.ending.stop or settings.stop),
        "ignore_eos": request.ending.ignore_eos,
        "show_special": request.ending.show_special,
        "system": request.prompting.system,
        "raw": request.prompting.raw,
        "prompt_ids": _digest(
            [
                one.prompt.message if isinstance(one.prompt, LlmcliError) else one.prompt.ids
                for one in job.requests
            ]
        ),
    }


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16]


def rows_done(job: Job, records: Sequence[Mapping[str, Any]]) -> Iterator[int]:
    """The rows of earlier records. Raises UsageError for one that is there twice, or not ours."""
    seen: set[int] = set()
    for number, record in enumerate(records, start=1):
        row = job.row(record)
        if row is None or row in seen:
            raise UsageError(
                f"--resume: line {number} of the output is a record "
                + ("of no prompt" if row is None else "that is there already"),
                hint="--overwrite begins anew",
            )
        seen.add(row)
        yield row


def setup_lines(job: Job, batch_size: int, done: Collection[int]) -> Iterator[str]:
    """What `-v` tells of the batches before they run."""
    batches = job.rows.batches
    before = f" ({len(done)} done before)" if done else ""
    count = "1 batch" if len(batches) == 1 else f"{len(batches)} batches"
    yield f"rows: {len(job.requests)}{before} in {count} of at most {batch_size}"
    if job.rows.apart is not None:
        yield f"batches: {job.rows.apart}"


def statistics_lines(job: Job) -> Iterator[str]:
    """What `-v` tells of the batches after they ran."""
    tally = job.rows.tally
    padding = 1 - tally.prompt_tokens / tally.slots if tally.slots else 0.0
    rate = f"{tally.new_tokens / tally.seconds:.1f} tok/s" if tally.seconds else "-"
    yield (
        f"batches: {tally.batches} run, {tally.prompt_tokens} prompt tokens and "
        f"{padding:.0%} padding, {tally.new_tokens} new tokens, {rate} in all"
    )
    yield f"largest cache of a batch: {tally.cache_bytes / 1e6:.1f} MB"
