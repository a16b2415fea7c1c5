"""A receipt from file to verdict: read, held against the checkpoint, run, compared, told.

Must not know tensors.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmcli import __version__
from llmcli.acquire.resolve import Resolved, resolve
from llmcli.checkpoint.escape import printable
from llmcli.cli import interrupts, terminal
from llmcli.cli.options import Loading
from llmcli.cli.progress import FetchProgress, StepProgress
from llmcli.cli.receipts import identity
from llmcli.cli.running import check_loading, load_found
from llmcli.engine.flags import check_flags
from llmcli.errors import AcquireError, LlmcliError, UsageError

if TYPE_CHECKING:
    from llmcli.engine.engine import Engine
    from llmcli.engine.generation import Generation
    from llmcli.engine.receipt import Model, Receipt
    from llmcli.engine.replay import Difference

IDENTICAL, DIFFERENT = 0, 1


def replay_file(
    path: Path,
    loading: Loading,
    draft: str | None,
    *,
    force: bool,
    json: bool,
    verbose: bool,
) -> int:
    """0 identical, 1 different. Raises LlmcliError for what cannot be replayed."""
    check_loading(loading)
    with interrupts.ending_at_once():
        from llmcli.engine.receipt_file import read_receipt
        from llmcli.engine.replay import first_difference, furthest_logprob

    receipt = read_receipt(path)
    check_flags(receipt.flags)
    # Fails at once where stdout is closed.
    terminal.Answer()
    engine, generation, changed = _ready(receipt, loading, draft, force=force)
    if verbose:
        for line in _setup(receipt, engine, generation):
            terminal.note(line)
    _to_the_end(generation)
    difference = first_difference(receipt, generation)
    furthest = furthest_logprob(receipt, generation)
    if json:
        told = _as_json(receipt, engine, generation, difference)
        terminal.print_json({**told, "changed_files": changed, "logprob_distance": furthest})
    else:
        answer = terminal.Answer()
        answer.write("\n".join(_lines(receipt, engine, generation, difference, furthest)))
        answer.end()
    return IDENTICAL if difference is None else DIFFERENT


def _ready(
    receipt: Receipt, loading: Loading, draft: str | None, *, force: bool
) -> tuple[Engine, Generation, list[str]]:
    """Everything up to the first token, and what is not the same of the checkpoint's files."""
    from llmcli.engine.replay import replay

    if draft is not None and receipt.draft is None:
        raise UsageError("the receipt's run had no draft model", hint="leave --draft-model out")
    found, changed = _find(receipt.model, loading.model, "--model", force=force)
    machine = receipt.machine
    now = replace(
        loading,
        device=loading.device or machine.device,
        dtype=loading.dtype or machine.dtype,
        threads=loading.threads or machine.threads,
        quantize=loading.quantize or machine.quantize,
    )
    guesser = None
    if receipt.draft is not None:
        beside, more = _find(receipt.draft, draft, "--draft-model", force=force)
        changed += [f"draft: {one}" for one in more]
        guesser = load_found(beside, now)
    engine = load_found(found, now)
    asked = loading.cache_kind if loading.cache or loading.kv_cache is not None else machine.cache
    bar = StepProgress("reading the prompt")
    generation = replay(engine, receipt, cache=asked, draft=guesser, on_prefill=bar)
    return engine, generation, changed


def _find(
    model: Model, given: str | None, option: str, *, force: bool
) -> tuple[Resolved, list[str]]:
    """The checkpoint given, or the receipt's own by its name; that one is never fetched unasked.

    Also what is not the same of its files, which is refused unless forced.
    """
    from llmcli.engine.identity import differences
    from llmcli.engine.receipt import name_of

    name = given or name_of(model)
    if name is None:
        raise UsageError(
            f"the receipt's model is called {printable(repr(model.name), 60)}, "
            "which is no name to look up",
            hint=f"say where it is: {option} FOLDER",
        )
    try:
        with FetchProgress() as progress:
            found = resolve(name, progress=progress, allow_fetch=given is not None)
    except AcquireError as error:
        if given is not None:
            raise
        raise AcquireError(
            f"the receipt's model {name} is not on this machine",
            hint=f"say where it is with {option} FOLDER, or fetch it with {option} {name}",
        ) from error
    changed = list(differences(model.files, identity(found).files))
    if changed and not force:
        raise LlmcliError(
            f"{printable(found.name)} is not the checkpoint of the receipt: " + "; ".join(changed),
            hint=f"give the right one with {option}, or add --force to replay all the same",
        )
    for one in changed:
        terminal.note(f"warning: {one}")
    return found, changed


def _to_the_end(generation: Generation) -> None:
    bar = StepProgress("replaying")
    try:
        for _ in generation:
            bar(len(generation.tokens), generation.settings.max_new_tokens)
    finally:
        bar.finish()


def _setup(receipt: Receipt, engine: Engine, generation: Generation) -> Iterator[str]:
    """What the run stands on, then and now."""
    then = {**asdict(receipt.versions), **asdict(receipt.machine)}
    for name, now in _now(engine, generation).items():
        same = then[name] == now
        yield f"{name}: {now}" + ("" if same else f" (then {printable(str(then[name]), 80)})")


def _now(engine: Engine, generation: Generation) -> dict[str, Any]:
    import torch

    decoder = engine.loaded.decoder
    return {
        "llmcli": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "device": str(decoder.device),
        "dtype": str(decoder.dtype).removeprefix("torch."),
        "threads": torch.get_num_threads(),
        "cache": generation.cache_kind,
        "quantize": engine.loaded.quantized,
    }


def _lines(
    receipt: Receipt,
    engine: Engine,
    generation: Generation,
    difference: Difference | None,
    furthest: float,
) -> Iterator[str]:
    apart = f"logprobs differ by at most {furthest:.2g}"
    if difference is None:
        yield f"identical: {len(generation.tokens)} new tokens; {apart}"
        return
    if difference.what != "ids":
        then, now = _values(receipt, generation, difference)
        yield f"all {difference.step} ids are the same, but {difference.what} is {now}, then {then}"
        return

    def name(id_: int | None) -> str:
        return "the end" if id_ is None else repr(engine.tokenizer.token_text(id_))

    yield f"different at new token {difference.step} of {len(receipt.result.ids)}"
    yield f"then: {name(difference.then)}"
    yield f"now:  {name(difference.now)}"
    if difference.gap is not None and difference.last is not None:
        measure = "logit" if difference.last.measure == "logits" else "score"
        two = ", ".join(f"{name(one.id)} {one.logit:.6g}" for one in difference.top)
        yield f"top-2 gap after {difference.last.name}: {difference.gap:.3g} ({measure}s: {two})"
    yield f"before it, {apart}"


def _values(receipt: Receipt, generation: Generation, difference: Difference) -> tuple[str, str]:
    then = receipt.result
    if difference.what == "text":
        return printable(repr(then.text), 80), printable(repr(generation.text), 80)
    return (
        f"{then.finish_reason} {printable(repr(then.stop_string), 40)}",
        f"{generation.finish_reason} {printable(repr(generation.matched_stop), 40)}",
    )


def _as_json(
    receipt: Receipt, engine: Engine, generation: Generation, difference: Difference | None
) -> dict[str, Any]:
    result: dict[str, Any] = {
        "identical": difference is None,
        "tokens": len(generation.tokens),
        "ids": generation.ids,
        "text": generation.text,
        "finish_reason": generation.finish_reason,
        "now": _now(engine, generation),
        "then": {**asdict(receipt.versions), **asdict(receipt.machine)},
        "difference": None,
    }
    if difference is not None:
        result["difference"] = {
            "what": difference.what,
            "step": difference.step,
            "then": _named(engine, difference.then),
            "now": _named(engine, difference.now),
            "stage": difference.last.name if difference.last else None,
            "top_2_gap": difference.gap,
            "top_2": [
                {"id": one.id, "token": engine.tokenizer.token_text(one.id), "logit": one.logit}
                for one in difference.top
            ],
        }
    return result


def _named(engine: Engine, id_: int | None) -> dict[str, Any] | None:
    return None if id_ is None else {"id": id_, "token": engine.tokenizer.token_text(id_)}
