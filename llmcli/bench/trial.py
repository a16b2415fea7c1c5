"""The whole measurement: arms take turns, fed the same ids, after a warm-up of the same shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from torch import Tensor

from llmcli.bench.arms import Arm
from llmcli.bench.clock import Clock, DeviceClock
from llmcli.bench.memory import Memory, Peak
from llmcli.bench.proof import Proof, prove
from llmcli.bench.runs import Method, Timing
from llmcli.bench.watching import Watch
from llmcli.cache import make_cache
from llmcli.generation.stepper import PREFILL_CHUNK, Stepper
from llmcli.model import Decoder
from llmcli.spec.cache_size import bytes_spared, cache_bytes
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

    `warmup` are runs that do not count; `same_ids` is whether every run gave the forced ids.
    `cache_bytes` is what the cache held at the end of a run, `formula_bytes` what it should have
    held, `step_work` what the last step read and computed, in `step_pieces` pieces; all are left
    out for a strategy that does not go one token a forward. `memory` is that of the first run,
    whether it counts or not; of its steps after the first token, `whole_steps` ran as a whole,
    in one kernel or recorded by the device, and not module by module.
    """

    arm: Arm
    warmup: list[Timing] = field(default_factory=list)
    runs: list[Timing] = field(default_factory=list)
    cache_bytes: int = 0
    formula_bytes: int | None = None
    step_work: tuple[Work, ...] = ()
    step_pieces: int = 1
    memory: Memory | None = None
    same_ids: bool = True
    whole_steps: int = 0
    proof: Proof | None = None


@dataclass(slots=True)
class CaseRuns:
    """`forced` are the new ids [rows,N] that every arm was fed; `reference` is the proof's."""

    case: Case
    stepwise: bool
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
    method: Method,
    *,
    clock: Clock | None = None,
    peak: Peak | None = None,
    on_run: OnRun | None = None,
) -> Iterator[CaseRuns]:
    """Give each case as soon as it has something to show, and go on filling it.

    `prompts` gives the ids [rows,T] of a case. `peak` watches each arm's first run, so that no
    other one waits for memory to be given back. A case is given before its first timed run, and
    whatever breaks the trial off, what it holds by then stays.
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
        forced = method.ids(_plain_stepper(decoder, case), prompt, case.new_tokens)
        reference = next((arm for arm in plan.arms if arm.kind == "none"), plan.arms[0])
        runs = CaseRuns(
            case,
            method.stepwise,
            forced,
            reference.name,
            {arm.name: ArmRuns(arm) for arm in plan.arms},
        )
        yield runs
        for number in range(plan.warmup + plan.repeats):
            warming = number < plan.warmup
            # The other way round each second time, so that no arm always comes first.
            for arm in plan.arms if number % 2 == 0 else reversed(plan.arms):
                told(f"{arm.name}, {'warm-up' if warming else 'run'}")
                into, stepper = runs.arms[arm.name], _stepper(decoder, arm, case)
                timed = partial(method.timed, stepper, prompt, forced, clock)
                timing, same = _watched(decoder, timed, into, peak) if number == 0 else timed()
                into.same_ids &= same
                (into.warmup if warming else into.runs).append(timing)
                _weigh(into, stepper, runs)
        if plan.prove:
            for name, proof in _proofs(decoder, plan, runs, prompt, told).items():
                runs.arms[name].proof = proof


def _watched(
    decoder: Decoder,
    timed: Callable[[], tuple[Timing, bool]],
    into: ArmRuns,
    peak: Peak | None,
) -> tuple[Timing, bool]:
    """An arm's first run, looked at closer than the rest: its memory, and how its steps ran."""
    if peak is not None:
        peak.begin()
    with Watch(decoder) as watch:
        found = timed()
    if peak is not None:
        into.memory = peak.read()
    into.whole_steps = sum(watch.whole[1:])
    return found


def _plain_stepper(decoder: Decoder, case: Case) -> Stepper:
    return Stepper(decoder, make_cache("growing", decoder.spec), planned=case.planned)


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


def _weigh(into: ArmRuns, stepper: Stepper, runs: CaseRuns) -> None:
    into.cache_bytes = stepper.cache.nbytes if stepper.cache is not None else 0
    if not runs.stepwise:
        return
    case = runs.case
    spec, size = stepper.decoder.spec, stepper.decoder.dtype.itemsize
    whole, rest = divmod(case.prompt_tokens, PREFILL_CHUNK)
    pieces = [PREFILL_CHUNK] * whole + [rest] * bool(rest) + [1] * (case.new_tokens - 1)
    into.formula_bytes = cache_bytes(
        into.arm.kind, spec, pieces, element_bytes=size, rows=case.rows, planned=case.planned
    )
    held, held_in = case.planned - 2, stepper.decoder.bytes_a_number()
    if into.arm.kind == "none":
        into.step_pieces = -(-(held + 1) // PREFILL_CHUNK)
        into.step_work = forward_work(
            spec,
            new=held + 1,
            cached=False,
            element_bytes=size,
            piece=PREFILL_CHUNK,
            held_in=held_in,
        )
    else:
        work = forward_work(spec, new=1, held=held, element_bytes=size, held_in=held_in)
        spared = bytes_spared(into.arm.kind, spec, pieces, element_bytes=size)
        into.step_work = tuple(
            replace(one, cache_read=one.cache_read - spared) if one.part == "attention" else one
            for one in work
        )
