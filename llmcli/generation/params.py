"""SamplingParams: every number that shapes the choice of a token, checked once."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from llmcli.errors import UsageError
from llmcli.generation.ranges import check_ranges, ranged


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """Neutral by default: temperature 1, and every penalty and filter off.

    `temperature` 0 is greedy whatever else is set. `top_k` 0 is off, and so is any value from
    the vocabulary's size up. `top_p` and `typical_p` 1 and `min_p` 0 are off; `top_p` 0 keeps
    the best token. `repetition_penalty` 1 is off; `repetition_last` 0 looks at all ids.
    `sequence_bias` shifts the last id of a run where the others stand before it, `bad_words`
    forbids it; `begin_suppress` forbids ids as the first new one, and `min_length` counts the
    prompt too. `mirostat_tau` 0 is off, else the surprise in bits that sampling aims at. `seed`
    None draws a fresh one. The chain in processors/ says what each does.

    Raises UsageError naming the value and its range.
    """

    temperature: float = ranged(1.0, sampling=True)
    top_k: int = ranged(0, sampling=True)
    top_p: float = ranged(1.0, 0, 1, sampling=True)
    min_p: float = ranged(0.0, 0, 1, sampling=True)
    typical_p: float = ranged(1.0, 0, 1, sampling=True)
    top_n_sigma: float = ranged(0.0, sampling=True)
    epsilon_cutoff: float = ranged(0.0, 0, 1, sampling=True)
    eta_cutoff: float = ranged(0.0, 0, 1, sampling=True)
    xtc_probability: float = ranged(0.0, 0, 1, sampling=True)
    xtc_threshold: float = ranged(0.1, 0, 0.5, sampling=True)
    mirostat_tau: float = ranged(0.0, sampling=True)
    mirostat_eta: float = ranged(0.1, 0, 1, above=True, sampling=True)
    repetition_penalty: float = ranged(1.0, above=True)
    repetition_last: int = ranged(0)
    presence_penalty: float = ranged(0.0, -math.inf)
    frequency_penalty: float = ranged(0.0, -math.inf)
    no_repeat_ngram: int = ranged(0)
    dry_multiplier: float = ranged(0.0)
    dry_base: float = ranged(1.75, 1)
    dry_allowed_length: int = ranged(2, 1)
    min_new_tokens: int = ranged(0)
    seed: int | None = ranged(None, 0, 2**63 - 1, sampling=True)
    logit_bias: tuple[tuple[int, float], ...] = ()
    suppress: tuple[int, ...] = ()
    sequence_bias: tuple[tuple[tuple[int, ...], float], ...] = ()
    bad_words: tuple[tuple[int, ...], ...] = ()
    begin_suppress: tuple[int, ...] = ()
    min_length: int = ranged(0)

    def __post_init__(self) -> None:
        check_ranges(self)
        for id_, bias in self.logit_bias:
            if not math.isfinite(bias):
                raise UsageError(
                    f"logit-bias of id {id_} is {bias:g}; it must be finite",
                    hint="--suppress forbids an id altogether",
                )


SAMPLING_KEYS = tuple(one.name for one in fields(SamplingParams))
# Read only where a token is drawn; every strategy reads the rest.
SAMPLING_ONLY = tuple(one.name for one in fields(SamplingParams) if one.metadata.get("sampling"))
