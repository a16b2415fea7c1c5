"""The whole measurement: arms take turns, fed the same ids, after a warm-up of the same shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from llmcli.bench.arms import Arm
from llmcli.bench.clock import Clock, DeviceClock
from llmcli.bench.proof import Proof, prove
from llmcli.bench.runs import Choose, Timing, timed_run
from llmcli.cache import make_cache
from llmcli.cache.size import cache_bytes
from llmcli.generation.stepper import PREFILL_CHUNK, Stepper
from llmcli.model import Decoder
from llmcli.spec.work import Work, forward_work


@dataclass(frozen=True, slots=True)
class Case:
    """One shape of work: `rows` copies of a prompt of that many tokens, and forced new ones."""

    prompt_tokens: int
    new_tokens: int
    rows: int

    @property
    def planned(self) -> int:
        return self.prompt_tokens + self.new_tokens


@dataclass(slots=True)
class ArmRuns:
    """What one arm did in one case; `runs` grows while the trial goes on.

    `warmup` are runs that do not count. `cache_bytes` is what the cache held at the end of a run,
    `formula_bytes` what it should have held. `step_work` is what the last step reads and
    computes.
    """

    arm: Arm
    warmup: list[Timing] = field(default_factory=list)
    runs: list[Timing] = field(default_factory=list)
    cache_bytes: int = 0
    formula_bytes: int = 0
    step_work: tuple[Work, ...] = ()
    proof: Proof | None = None


@dataclass(slots=True)
class CaseRuns:
    """`forced` are the new ids [rows,N] that every arm was fed; `reference` is the proof's."""

    case: Case
    forced: Tensor
    reference: str
    arms: dict[str, ArmRuns]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is to be measured: every case with every arm, `repeats` times after `warmup` runs."""

    arms: Sequence[Arm]
    cases: Sequence[Case]
    repeats: int
    warmup: int
    prove: bool = True


# (runs done, runs in all, what runs now)
OnRun = Callable[[int, int, str], None]


def measure(
    decoder: Decoder,
    prompts: Callable[[Case], Tensor],
    plan: Plan,
    choose: Callable[[], Choose],
    *,
    clock: Clock | None = None,
    on_run: OnRun | None = None,
) -> Iterator[CaseRuns]:
    """Give each case as soon as it has something to show, and go on filling it.

    `prompts` gives the ids [rows,T] of a case; `choose` makes a fresh chooser for a run, so that
    every run draws the same numbers. A case is given before its first timed run, and whatever
    breaks the trial off, what it holds by then stays.
    """
    clock = clock or DeviceClock(decoder.device)
    each = plan.warmup + plan.repeats + plan.prove
    done, total = 0, each * len(plan.arms) * len(plan.cases)

    def told(what: str) -> None:
        nonlocal done
        if on_run is not None:
            on_run(done, total, what)
        done += 1

    for case in plan.cases:
        prompt = prompts(case)
        forced = _forced(decoder, prompt, case, choose())
        reference = next((arm for arm in plan.arms if arm.kind == "none"), plan.arms[0])
        runs = CaseRuns(case, forced, reference.name, {a.name: ArmRuns(a) for a in plan.arms})
        yield runs
        for number in range(plan.warmup + plan.repeats):
            warming = number < plan.warmup
            for arm in plan.arms:
                told(f"{arm.name}, {'warm-up' if warming else 'run'}")
                stepper = _stepper(decoder, arm, case)
                timing = timed_run(stepper, prompt, forced, choose(), clock)
                into = runs.arms[arm.name]
                (into.warmup if warming else into.runs).append(timing)
                _weigh(into, stepper, case)
        if plan.prove:
            for name, proof in _proofs(decoder, plan, runs, prompt, told).items():
                runs.arms[name].proof = proof


def _forced(decoder: Decoder, prompt: Tensor, case: Case, choose: Choose) -> Tensor:
    """The ids that the strategy chooses, past any end token; [rows,N]."""
    stepper = Stepper(decoder, make_cache("growing", decoder.spec), planned=case.planned)
    new, found = prompt, []
    for _ in range(case.new_tokens):
        logits = stepper.feed(new)
        new = choose(stepper.ids, logits)[:, None]
        found.append(new)
    return torch.cat(found, 1)


def _proofs(
    decoder: Decoder, plan: Plan, runs: CaseRuns, prompt: Tensor, told: Callable[[str], None]
) -> dict[str, Proof]:
    others = {}
    for arm in plan.arms:
        told(f"{arm.name}, proof")
        if arm.name != runs.reference:
            others[arm.name] = _stepper(decoder, arm, runs.case)
    first = next(arm for arm in plan.arms if arm.name == runs.reference)
    return prove(_stepper(decoder, first, runs.case), others, prompt, runs.forced)


def _stepper(decoder: Decoder, arm: Arm, case: Case) -> Stepper:
    cache = make_cache(arm.kind, decoder.spec, planned=case.planned)
    return Stepper(decoder, cache, planned=case.planned)


def _weigh(into: ArmRuns, stepper: Stepper, case: Case) -> None:
    spec, size = stepper.decoder.spec, stepper.decoder.dtype.itemsize
    into.cache_bytes = stepper.cache.nbytes if stepper.cache is not None else 0
    whole, rest = divmod(case.prompt_tokens, PREFILL_CHUNK)
    pieces = [PREFILL_CHUNK] * whole + [rest] * bool(rest) + [1] * (case.new_tokens - 1)
    into.formula_bytes = cache_bytes(
        into.arm.kind, spec, pieces, element_bytes=size, rows=case.rows, planned=case.planned
    )
    held = case.planned - 2
    if into.arm.kind == "none":
        into.step_work = forward_work(spec, new=held + 1, cached=False, element_bytes=size)
    else:
        into.step_work = forward_work(spec, new=1, held=held, element_bytes=size)
