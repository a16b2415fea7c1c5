"""A trial of bench-cache: prompts, strategies as methods, the machine's facts, the report.

Must not know terminals or argv.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from llmcli import __version__
from llmcli.bench.clock import DeviceClock
from llmcli.bench.memory import Peak, find_peak
from llmcli.bench.probes import Limits, measure_limits
from llmcli.bench.report import Report, Strategy
from llmcli.bench.runs import Choose, Forced, Free, Method
from llmcli.bench.summary import crossovers, curves, summarise
from llmcli.bench.trial import Case, CaseRuns, OnRun, Plan, measure
from llmcli.engine.bench_request import Settled, is_stepwise
from llmcli.engine.engine import Engine
from llmcli.engine.machine import machine_facts
from llmcli.engine.settings import Settings
from llmcli.engine.stats import peak_memory
from llmcli.generation.explain import run_chain
from llmcli.generation.processors import Surroundings, make_processors
from llmcli.generation.sampler import Sampler
from llmcli.generation.strategies import StrategyOptions, make_strategy


class Bench:
    """A trial under way: `run` fills it, `report` tells what is there by then."""

    def __init__(self, engine: Engine, settled: Settled) -> None:
        self.engine, self.request = engine, settled.request
        self.limits: Limits | None = None
        self._peak: Peak | None = None
        self.whole = False
        self._found: list[tuple[Settings, list[CaseRuns]]] = []
        self._arms = settled.arms
        self._methods = [(one, _method(engine, one)) for one in settled.settings]

    def run(self, on_run: OnRun | None = None) -> None:
        """Measure everything; broken off by an exception, what is there stays."""
        decoder = self.engine.loaded.decoder
        clock = DeviceClock(decoder.device)
        self._peak = find_peak(decoder.device)
        self.limits = measure_limits(decoder.device, decoder.dtype, clock)
        plan = Plan(
            arms=self._arms,
            cases=self.request.cases,
            repeats=self.request.repeats,
            warmup=self.request.warmup,
        )
        for number, (settings, method) in enumerate(self._methods):
            cases: list[CaseRuns] = []
            self._found.append((settings, cases))
            told = _shifted(on_run, number, len(self._methods), settings.strategy)
            begun = measure(
                decoder, self._prompt, plan, method, clock=clock, peak=self._peak, on_run=told
            )
            cases.extend(begun)
        # Once more, since something else may have held the machine up at the start.
        again = measure_limits(decoder.device, decoder.dtype, clock)
        self.limits = self.limits.or_higher(again)
        self.whole = True

    def report(self) -> Report:
        """Of what has been measured so far."""
        request, decoder = self.request, self.engine.loaded.decoder
        return Report(
            version=__version__,
            model=request.model,
            command=request.command,
            seed=request.seed,
            repeats=request.repeats,
            warmup=request.warmup,
            machine=machine_facts(decoder, self.engine.loaded.kernels),
            limits=self.limits,
            strategies=tuple(_strategy(settings, cases) for settings, cases in self._found),
            peak_memory_bytes=self._most_memory(),
            memory_scope=self._peak.scope if self._peak is not None else None,
            whole=self.whole,
        )

    def _most_memory(self) -> int | None:
        now = peak_memory(self.engine.loaded.decoder.device)
        # A mark that was set back forgets what came before.
        return now if now is None or self._peak is None else max(now, self._peak.ever)

    def _prompt(self, case: Case) -> Tensor:
        device = self.engine.loaded.decoder.device
        if self.request.prompt_ids is not None:
            ids = torch.tensor([self.request.prompt_ids])
        else:
            generator = torch.Generator().manual_seed(self.request.seed)
            size = self.engine.loaded.spec.vocab_size
            ids = torch.randint(size, (1, case.prompt_tokens), generator=generator)
        return ids.to(device).repeat(case.rows, 1)


def _method(engine: Engine, settings: Settings) -> Method:
    if is_stepwise(settings):
        return Forced(_chooser(engine, settings))
    options = StrategyOptions(
        line_break_ids=engine.line_break_ids, sampling=settings.sampling, **settings.options
    )
    return Free(lambda: make_strategy(settings.strategy, settings.params, options))


def _chooser(engine: Engine, settings: Settings) -> Callable[[int], Choose]:
    """The processors and the sampler of greedy or sample, for a prompt of that many tokens."""
    drawing = settings.strategy == "sample"

    def make(prompt: int) -> Choose:
        sampler = Sampler(settings.params.seed)
        chain = make_processors(
            settings.params,
            sampling=drawing,
            surroundings=Surroundings(prompt, (), engine.line_break_ids),
            generator=sampler.generator,
        )

        def choose(ids: Tensor, logits: Tensor) -> Tensor:
            shaped = run_chain(chain, ids, logits)
            return sampler.draw(shaped) if drawing else shaped.argmax(-1)

        return choose

    return make


def _shifted(on_run: OnRun | None, number: int, count: int, strategy: str) -> OnRun | None:
    """Progress of one strategy as a part of all of them."""
    if on_run is None:
        return None
    return lambda done, total, what: on_run(
        number * total + done, count * total, f"{strategy}, {what}"
    )


def _strategy(settings: Settings, cases: Sequence[CaseRuns]) -> Strategy:
    begun = [case for case in cases if any(arm.runs for arm in case.arms.values())]
    found = curves(begun)
    finished = [case for case in begun if all(arm.runs for arm in case.arms.values())]
    return Strategy(
        settings.strategy,
        {name: one.value for name, one in settings.used.items() if name != "max_new_tokens"},
        tuple(summarise(case) for case in begun),
        found,
        crossovers(finished, found),
    )
