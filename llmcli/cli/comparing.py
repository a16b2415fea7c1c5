"""--compare: one prompt through several arms, shown side by side. Must not know tensors."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from llmcli import __version__
from llmcli.cli import interrupts, terminal
from llmcli.cli.answering import Show
from llmcli.cli.progress import StepProgress
from llmcli.cli.running import (
    Request,
    find_draft,
    find_model,
    generate_options,
    load_found,
    make_prompt,
    negative_prompt,
)
from llmcli.cli.side_by_side import Column, laid_out
from llmcli.engine.arms import Arm, plan_arms
from llmcli.engine.flags import Flags
from llmcli.errors import UsageError

if TYPE_CHECKING:
    from llmcli.engine.compare import Scores
    from llmcli.engine.engine import Engine
    from llmcli.engine.generation import Generation
    from llmcli.engine.options import GenerateOptions
    from llmcli.engine.prompt import Prompt

# Told by the arm's name already, or the same for all arms.
_NOT_IN_TITLE = ("strategy", "max_new_tokens")


@dataclass(frozen=True, slots=True)
class _Finished:
    arm: Arm
    generation: Generation
    scores: Scores


def compare_arms(
    text: str, flags: Flags, request: Request, read: Callable[[], str], show: Show
) -> int:
    """0, or 130 where Ctrl-C left the last arms out. Raises LlmcliError.

    The request is without the flags, of which every arm gets those that it reads.
    """
    arms = plan_arms(text, flags, fresh_seed=secrets.randbelow(2**32))
    requests = [replace(request, flags=arm.flags) for arm in arms]
    _refuse_unread(request, show, several=(flags.num_return or 1) > 1)
    # Fails at once where stdout is closed.
    terminal.Answer()
    typed = read()
    resolved = find_model(request.loading.model)
    # The same for every arm that has one.
    asked = next((arm.flags.draft_model for arm in arms if arm.flags.draft_model), None)
    draft = find_draft(asked, resolved, request.loading)
    engine = load_found(resolved, request.loading, template=request.prompting.template)
    prompt = make_prompt(engine, request.prompting, typed)
    led = next((one for one in requests if one.flags.negative_prompt is not None), request)
    options = replace(
        generate_options(request),
        negative=negative_prompt(engine, led),
        draft=None if draft is None else load_found(draft, request.loading),
    )
    done: list[_Finished] = []
    try:
        code = _run(engine, prompt, arms, options, done, verbose=show.verbose)
    finally:
        # Also after a failure: what is finished is not lost.
        if done and show.json:
            terminal.print_json(_as_json(resolved.name, engine, prompt, done))
        elif done:
            _print(done)
    return code


def _refuse_unread(request: Request, show: Show, *, several: bool) -> None:
    given = {
        "--explain": request.explain,
        "--receipt": request.receipt is not None,
        "--logprobs": request.logprobs is not None,
        "--echo": show.echo,
        "--raw-output": show.raw_output,
        "--num-return": several,
        "--max-context": request.context.max_context is not None,
        "--overflow": request.context.overflow is not None,
    }
    if names := [name for name, asked in given.items() if asked]:
        raise UsageError(
            f"--compare does not read {', '.join(names)}",
            hint=f"leave {'it' if len(names) == 1 else 'them'} out, or run one arm by itself",
        )


def _run(
    engine: Engine,
    prompt: Prompt,
    arms: tuple[Arm, ...],
    options: GenerateOptions,
    done: list[_Finished],
    *,
    verbose: bool,
) -> int:
    """Fills `done` with the arms that are over, and the one that Ctrl-C broke off."""
    from llmcli.engine.compare import compare, scores

    prefill, search = StepProgress("reading the prompt"), StepProgress("searching")
    options = replace(options, on_step=search)
    running: tuple[Arm, Generation] | None = None
    try:
        for running in compare(engine, prompt, arms, options, on_prefill=prefill):
            prefill.finish()
            arm, generation = running
            if not done:
                for warning in generation.settings.warnings:
                    terminal.note(f"warning: {warning}")
            if verbose:
                terminal.note(f"{arm.name}: {_told(generation, ())}")
            _to_the_end(generation, f"{arm.name} ({len(done) + 1} of {len(arms)})", search)
            with interrupts.held():
                done.append(_Finished(arm, generation, scores(generation)))
                running = None
    except BaseException as error:
        prefill.finish()
        search.finish()
        if not isinstance(error, KeyboardInterrupt) and not interrupts.pending():
            raise
        interrupts.acknowledge()
        if running is not None and running[1].tokens:
            running[1].finish()
            done.append(_Finished(*running, scores(running[1])))
        return interrupts.INTERRUPTED
    return 0


def _to_the_end(generation: Generation, label: str, search: StepProgress) -> None:
    """`search` is drawn until the first token."""
    bar = StepProgress(label)
    most = generation.settings.max_new_tokens
    try:
        for _ in generation:
            search.finish()
            bar(len(generation.tokens), most)
    finally:
        search.finish()
        bar.finish()


def _print(done: list[_Finished]) -> None:
    columns = [
        Column(
            " ".join([one.arm.name, *_titled(one.generation)]),
            one.generation.text,
            tuple(_facts(one)),
        )
        for one in done
    ]
    answer = terminal.Answer()
    for number, line in enumerate(laid_out(columns, terminal.width(sys.stdout))):
        answer.write(("\n" if number else "") + line)
    answer.end()


def _titled(generation: Generation) -> list[str]:
    told = _told(generation, _NOT_IN_TITLE)
    return [f"({told})"] if told else []


def _told(generation: Generation, without: tuple[str, ...]) -> str:
    """What was asked for, by flag or by the arm's name."""
    return ", ".join(
        f"{name} {setting.value}"
        for name, setting in generation.settings.used.items()
        if setting.source == "flag" and name not in without
    )


def _facts(one: _Finished) -> Iterator[tuple[str, str]]:
    scores = one.scores
    yield "tokens", str(scores.tokens)
    yield "finish", one.generation.finish_reason
    yield "mean logprob", _number(scores.mean_logprob, 3)
    yield "distinct-1", _number(scores.distinct_1, 3)
    yield "distinct-2", _number(scores.distinct_2, 3)
    yield "repeats", _number(scores.repeats, 3)
    yield "tok/s", _number(scores.rate, 1)


def _number(value: float | None, places: int) -> str:
    return "-" if value is None else f"{value:.{places}f}"


def _as_json(model: str, engine: Engine, prompt: Prompt, done: list[_Finished]) -> dict[str, Any]:
    return {
        "model": model,
        "prompt": prompt.text,
        "prompt_ids": list(prompt.ids),
        "device": str(engine.loaded.decoder.device),
        "dtype": str(engine.loaded.decoder.dtype).removeprefix("torch."),
        "quantize": engine.loaded.quantized,
        "arms": [_arm(one) for one in done],
        "version": __version__,
    }


def _arm(one: _Finished) -> dict[str, Any]:
    generation = one.generation
    return {
        "arm": one.arm.name,
        "options": {name: asdict(value) for name, value in generation.settings.used.items()},
        "text": generation.text,
        "ids": generation.ids,
        "logprobs": [token.logprob for token in generation.tokens],
        "finish_reason": generation.finish_reason,
        "stop_string": generation.matched_stop,
        "cache": generation.cache_kind,
        "prefilled_tokens": generation.stats.prefilled_tokens,
        **asdict(one.scores),
    }
