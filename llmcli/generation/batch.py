"""Batch: several texts through one decoder at a time, each exactly as if it ran alone.

Rows share forwards and nothing else: each has its own chain of processors, its own draws and
its own end. Must not know where the rows come from, nor how they are put together.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from llmcli.errors import GenerationError
from llmcli.generation.explain import run_chain
from llmcli.generation.finite import not_finite
from llmcli.generation.params import SamplingParams
from llmcli.generation.processors import Processor, Surroundings, make_processors
from llmcli.generation.sampler import Sampler, make_sampler
from llmcli.generation.stepper import Stepper
from llmcli.generation.stop import StopRule
from llmcli.generation.token import Token


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRow:
    """One text to generate. `params` hold its seed; `stop` leaves it at least one new token."""

    prompt_ids: tuple[int, ...]
    params: SamplingParams
    stop: StopRule


class Batch:
    """Rows that advance together, a token each a step, until each has ended or is dropped.

    The stepper has been fed nothing; where all prompts are equal, its cache may hold a beginning
    of them. Prompts of different lengths need `spec.can_pad`.
    """

    def __init__(
        self,
        stepper: Stepper,
        rows: Sequence[BatchRow],
        *,
        sampling: bool,
        line_break_ids: Collection[int] = (),
    ) -> None:
        assert all(row.stop.budget >= 1 for row in rows)
        self._stepper = stepper
        self._rows = [_Running(row, sampling, line_break_ids) for row in rows]
        self._longest = max((len(row.prompt_ids) for row in rows), default=0)
        self._alive = list(range(len(rows)))  # the row of each of the stepper's rows
        self._over: set[int] = set()
        self._new: Tensor | None = None
        self._produced = 0

    @property
    def done(self) -> bool:
        return len(self._over) == len(self._rows)

    def drop(self, row: int) -> None:
        """The row needs no more tokens."""
        self._over.add(row)

    def step(self) -> list[tuple[int, Token | GenerationError]]:
        """The next token of every row that goes on, in order of rows.

        A row whose logits are not finite ends with the error; no other row notices.
        """
        self._leave()
        if not self._alive:
            return []
        logits = self._prefill() if self._new is None else self._stepper.feed(self._new)
        self._produced += 1
        chosen = self._choose(logits)
        self._new = chosen[:, None]
        logprobs = logits.log_softmax(-1).gather(-1, self._new)[:, 0]
        # One copy to the host a step, with the sums that show any NaN or infinity.
        facts = torch.stack((chosen.double(), logprobs.double(), logits.sum(-1).double())).tolist()
        return [
            (row, self._token(at, row, int(id_), logprob, total))
            for at, (row, id_, logprob, total) in enumerate(zip(self._alive, *facts, strict=True))
        ]

    def _token(
        self, at: int, row: int, id_: int, logprob: float, total: float
    ) -> Token | GenerationError:
        if not math.isfinite(total):
            self.drop(row)
            # The new ids are not among the stepper's yet.
            return not_finite(self._stepper.decoder, self._own_ids(at), self._produced)
        reason = self._rows[row].stop.reason(id_, self._produced)
        if reason:
            self.drop(row)
        return Token(id_, logprob, finish_reason=reason)

    def _leave(self) -> None:
        """Rows that are over cost no further forward."""
        kept = [at for at, row in enumerate(self._alive) if row not in self._over]
        if len(kept) == len(self._alive):
            return
        self._alive = [self._alive[at] for at in kept]
        if self._alive and self._new is not None:
            index = torch.tensor(kept, device=self._new.device)
            self._new = self._new.index_select(0, index)
            self._stepper.reorder(index)

    def _prefill(self) -> Tensor:
        """The logits [B,V] after each prompt. Equal prompts are computed once, then copied."""
        prompts = [self._rows[row].prompt_ids for row in self._alive]
        places = {ids: at for at, ids in enumerate(dict.fromkeys(prompts))}
        pads = [self._longest - len(ids) for ids in places]
        # Padding repeats the first id: such a slot sees itself alone, as the first one does, so
        # it computes nothing that the text would not compute anyway.
        padded = [ids[:1] * pad + ids for ids, pad in zip(places, pads, strict=True)]
        device = self._stepper.decoder.device
        if any(pads):
            assert self._stepper.decoder.spec.can_pad
            self._stepper.pads = torch.tensor(pads, device=device)
        logits = self._stepper.feed(torch.tensor(padded, dtype=torch.long, device=device))
        if len(places) == len(prompts):
            return logits
        index = torch.tensor([places[ids] for ids in prompts], device=device)
        self._stepper.reorder(index)
        return logits.index_select(0, index)

    def _choose(self, logits: Tensor) -> Tensor:
        """An id for each row [B] from logits [B,V]."""
        rows = [self._rows[row] for row in self._alive]
        if any(row.chain for row in rows):
            shaped = [
                run_chain(row.chain, self._own_ids(at), logits[at : at + 1])
                for at, row in enumerate(rows)
            ]
            logits = torch.cat(shaped)
        if any(row.sampler for row in rows):
            return torch.cat(
                [
                    row.sampler.draw(logits[at : at + 1])
                    for at, row in enumerate(rows)
                    if row.sampler
                ]
            )
        return logits.argmax(-1)

    def _own_ids(self, at: int) -> Tensor:
        """The ids [1,n] of one of the stepper's rows, without what fills it up."""
        pad = self._longest - len(self._rows[self._alive[at]].prompt_ids)
        return self._stepper.ids[at : at + 1, pad:]


class _Running:
    """A row with what it keeps from step to step."""

    def __init__(self, row: BatchRow, sampling: bool, line_break_ids: Collection[int]) -> None:
        self.prompt_ids, self.stop = row.prompt_ids, row.stop
        drawing = sampling and row.params.temperature > 0
        self.sampler: Sampler | None = make_sampler(row.params) if drawing else None
        self.chain: list[tuple[str, Processor]] = make_processors(
            row.params,
            sampling=drawing,
            surroundings=Surroundings(len(row.prompt_ids), row.stop.stop_ids, line_break_ids),
            generator=self.sampler.generator if self.sampler else None,
        )
