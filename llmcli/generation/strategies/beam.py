"""Beam search: the likeliest whole continuations rather than the likeliest next token.

Scores are sums of logprobs over the new tokens alone, divided by their number to the power of
`length_penalty`; the prompt's length never enters.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from llmcli.generation.ancestry import Ancestry
from llmcli.generation.explain import run_chain
from llmcli.generation.finite import check_finite
from llmcli.generation.outcome import Beam, Hypothesis, Outcome
from llmcli.generation.params import SamplingParams
from llmcli.generation.processors import Processor, Surroundings, make_processors
from llmcli.generation.stepper import Stepper
from llmcli.generation.stop import StopRule
from llmcli.generation.strategies.base import StrategyOptions
from llmcli.generation.token import FinishReason, Token


@dataclass(slots=True)
class _Group:
    """Beams that compete with one another only; `rows` are their places in the batch."""

    beams: list[Beam]
    finished: list[Hypothesis]
    number: int
    done: bool = False


class BeamSearch:
    """Keeps `num_beams` continuations, in `num_beam_groups` groups that avoid each other's ids.

    `early_stopping` on ends a group once it has enough finished ones; off, once the best live
    one cannot win at its present length; never, once it cannot win at any length. A group of
    diverse beam search (arXiv 1610.02424) loses `diversity_penalty` for each earlier group's
    beam that chose the same id in this step.
    """

    def __init__(self, params: SamplingParams, options: StrategyOptions) -> None:
        self._params = params
        self._options = options
        self._ancestry: Ancestry | None = None
        self.outcome = Outcome()

    def run(self, stepper: Stepper, prompt_ids: Sequence[int], stop: StopRule) -> Iterator[Token]:
        if stop.budget < 1:
            return
        if self._options.explain is not None:
            self._ancestry = Ancestry(self._options.explain)
        self._chain = make_processors(
            self._params,
            sampling=False,
            surroundings=Surroundings(
                len(prompt_ids),
                stop.stop_ids,
                self._options.line_break_ids,
                self._options.constraint,
            ),
        )
        groups = [_Group([Beam()], [], at) for at in range(self._options.num_beam_groups)]
        device = stepper.decoder.device
        new = torch.tensor([prompt_ids], dtype=torch.long, device=device)
        logits = stepper.feed(new)
        # All groups begin with the one row of the prompt.
        self._repeat(stepper, len(groups))
        logits = logits.expand(len(groups), -1)
        for produced in range(1, stop.budget + 1):
            check_finite(logits.sum().item(), stepper, produced)
            parents = self._advance(groups, logits, stepper.ids, stop, produced)
            if self._options.on_step is not None:
                self._options.on_step(produced, stop.budget)
            if not parents:
                break
            if produced < stop.budget:
                stepper.reorder(torch.tensor(parents, device=device))
                last = [[beam.ids[-1]] for group in groups for beam in group.beams]
                logits = stepper.feed(torch.tensor(last, device=device))
        self._close(groups, stop)
        yield from _tokens(self.outcome.hypotheses[0])

    def _advance(
        self, groups: list[_Group], logits: Tensor, ids: Tensor, stop: StopRule, produced: int
    ) -> list[int]:
        """One step of every group; the rows of the batch that the kept beams go on from."""
        ancestry = self._ancestry
        if ancestry is not None:
            ancestry.begin([(one.number, beam.ids) for one in groups for beam in one.beams], logits)
        shaped = run_chain(self._chain, ids, logits, ancestry)
        scores, own = shaped.log_softmax(-1), logits.log_softmax(-1)
        parents: list[int] = []
        first = 0
        chosen = torch.zeros(logits.shape[-1], device=logits.device)
        for group in groups:
            rows = slice(first, first + len(group.beams))
            first += len(group.beams)
            if group.done:
                group.beams = []
                continue
            penalised = scores[rows] - self._options.diversity_penalty * chosen
            if ancestry is not None and self._options.diversity_penalty:
                ancestry.stage("diversity", penalised, rows.start)
            kept = self._step(group, penalised, own[rows], stop, produced)
            parents += [rows.start + row for row in kept]
            for beam in group.beams:
                chosen[beam.ids[-1]] += 1
        return parents

    def _step(
        self, group: _Group, scores: Tensor, own: Tensor, stop: StopRule, produced: int
    ) -> list[int]:
        """Extend the beams of one group by one id; the beams kept and the rows they came from."""
        width = self._width
        totals = torch.tensor([beam.total for beam in group.beams], dtype=torch.float64)
        flat = (totals[:, None].to(scores.device) + scores.double()).flatten()
        # Each beam may end in every stop id, so that many more candidates are looked at.
        count = min(width * (1 + max(1, len(stop.stop_ids))), flat.numel())
        best = flat.topk(count)
        beams: list[Beam] = []
        rows: list[int] = []
        vocab = scores.shape[-1]
        for total, place in zip(best.values.tolist(), best.indices.tolist(), strict=True):
            if total == float("-inf") or len(beams) == width:
                break
            row, id_ = divmod(place, vocab)
            parent = group.beams[row]
            logprob = own[row, id_].item()
            beam = Beam((*parent.ids, id_), (*parent.logprobs, logprob), total)
            if self._ancestry is not None:
                self._ancestry.keep((group.number, beam.ids), total)
            if id_ in stop.stop_ids:
                self._finish(group, beam, "stop")
            else:
                beams.append(beam)
                rows.append(row)
        group.beams = beams
        group.done = not beams or self._cannot_win(group, stop, produced)
        if group.done and produced < stop.budget:
            group.beams, rows = [], []
        return rows

    def _cannot_win(self, group: _Group, stop: StopRule, produced: int) -> bool:
        """Whether going on is of no use, by the rule that was asked for."""
        if len(group.finished) < self._width:
            return False
        if self._options.early_stopping == "on":
            return True
        penalty = self._options.length_penalty
        longest = self._options.early_stopping == "never" and penalty > 0
        length = stop.budget if longest else produced
        best = max(beam.score(penalty, length) for beam in group.beams)
        return best <= group.finished[-1].score

    def _finish(self, group: _Group, beam: Beam, reason: FinishReason) -> None:
        score = beam.score(self._options.length_penalty)
        group.finished.append(Hypothesis(beam, score, reason))
        group.finished.sort(key=lambda one: -one.score)
        del group.finished[self._width :]

    def _close(self, groups: list[_Group], stop: StopRule) -> None:
        """At the end of the budget the live beams are hypotheses too."""
        for group in groups:
            for beam in group.beams:
                reason = stop.exhausted(len(beam.ids))
                assert reason is not None
                self._finish(group, beam, reason)
        every = [one for group in groups for one in group.finished]
        every.sort(key=lambda one: -one.score)
        self.outcome.hypotheses = every[: self._options.num_return]
        if self._ancestry is not None:
            best = every[0]
            (number,) = [g.number for g in groups if any(one is best for one in g.finished)]
            self._ancestry.tell((number, best.beam.ids))

    def _repeat(self, stepper: Stepper, count: int) -> None:
        if count > 1:
            stepper.reorder(torch.zeros(count, dtype=torch.long, device=stepper.decoder.device))

    @property
    def _width(self) -> int:
        return self._options.num_beams // self._options.num_beam_groups

    _chain: list[tuple[str, Processor]]


def _tokens(best: Hypothesis) -> Iterator[Token]:
    last = len(best.beam.ids) - 1
    for place, (id_, logprob) in enumerate(zip(best.beam.ids, best.beam.logprobs, strict=True)):
        yield Token(id_, logprob, finish_reason=best.finish_reason if place == last else None)
