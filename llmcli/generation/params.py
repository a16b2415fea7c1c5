"""SamplingParams: every number that shapes the choice of a token, checked once."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import Any

from llmcli.errors import UsageError


def _param(
    default: Any,
    low: float = 0,
    high: float = math.inf,
    *,
    above: bool = False,
    sampling: bool = False,
) -> Any:
    """A neutral default and the range in which values lie; `above` leaves `low` itself out.

    `sampling` marks what is read only where a token is drawn.
    """
    limits = {"low": low, "high": high, "above": above}
    return field(default=default, metadata={"limits": limits, "sampling": sampling})


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """Neutral by default: temperature 1, and every penalty and filter off.

    `temperature` 0 is greedy whatever else is set. `top_k` 0 is off, and so is any value from
    the vocabulary's size up. `top_p` and `typical_p` 1 and `min_p` 0 are off; `top_p` 0 keeps
    the best token. `repetition_penalty` 1 is off; `repetition_last` 0 looks at all ids.
    `mirostat_tau` 0 is off, else the surprise in bits that sampling aims at. `seed` None draws
    a fresh one. The chain in processors/ says what each does.

    Raises UsageError naming the value and its range.
    """

    temperature: float = _param(1.0, sampling=True)
    top_k: int = _param(0, sampling=True)
    top_p: float = _param(1.0, 0, 1, sampling=True)
    min_p: float = _param(0.0, 0, 1, sampling=True)
    typical_p: float = _param(1.0, 0, 1, sampling=True)
    top_n_sigma: float = _param(0.0, sampling=True)
    epsilon_cutoff: float = _param(0.0, 0, 1, sampling=True)
    eta_cutoff: float = _param(0.0, 0, 1, sampling=True)
    xtc_probability: float = _param(0.0, 0, 1, sampling=True)
    xtc_threshold: float = _param(0.1, 0, 0.5, sampling=True)
    mirostat_tau: float = _param(0.0, sampling=True)
    mirostat_eta: float = _param(0.1, 0, 1, above=True, sampling=True)
    repetition_penalty: float = _param(1.0, above=True)
    repetition_last: int = _param(0)
    presence_penalty: float = _param(0.0, -math.inf)
    frequency_penalty: float = _param(0.0, -math.inf)
    no_repeat_ngram: int = _param(0)
    dry_multiplier: float = _param(0.0)
    dry_base: float = _param(1.75, 1)
    dry_allowed_length: int = _param(2, 1)
    min_new_tokens: int = _param(0)
    seed: int | None = _param(None, 0, 2**63 - 1, sampling=True)
    logit_bias: tuple[tuple[int, float], ...] = ()
    suppress: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if one.metadata and value is not None:
                _check(one.name.replace("_", "-"), value, **one.metadata["limits"])
        for id_, bias in self.logit_bias:
            if not math.isfinite(bias):
                raise UsageError(
                    f"logit-bias of id {id_} is {bias:g}; it must be finite",
                    hint="--suppress forbids an id altogether",
                )


SAMPLING_KEYS = tuple(one.name for one in fields(SamplingParams))
# Read only where a token is drawn; every strategy reads the rest.
SAMPLING_ONLY = tuple(one.name for one in fields(SamplingParams) if one.metadata.get("sampling"))


def _check(name: str, value: float, *, low: float, high: float, above: bool) -> None:
    # NaN fails every comparison, so it is refused as well; infinity is never a setting.
    inside = low < value <= high if above else low <= value <= high
    if inside and not math.isinf(value):
        return
    if math.isinf(high) and math.isinf(low):
        wanted = "be a finite number"
    elif math.isinf(high):
        wanted = f"be {'above' if above else 'at least'} {low:g} and finite"
    else:
        wanted = f"lie between {low:g}{' (left out)' if above else ''} and {high:g}"
    raise UsageError(
        f"{name} is {value:g}; it must {wanted}",
        hint=f"see --{name} in `llmcli generate --help`",
    )
