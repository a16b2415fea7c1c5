"""One decode step with the KV cache and without it: what runs, what is reused, what it costs.

Must not know terminals.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from llmcli.cache import CacheKind, make_cache
from llmcli.generation.stepper import PREFILL_CHUNK, Stepper
from llmcli.model import Decoder
from llmcli.spec.work import Work, forward_work, total

# Timed at least and at most so many times, and the best taken.
_REPEATS = (3, 20)
_PATIENCE_SECONDS = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Reused:
    """How many earlier keys and values a layer reads from the cache; None of a recurrent one.

    A recurrent layer reuses its state.
    """

    layer: int
    keys: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """The step in one way. `streams` are the positions whose streams run through the layers.

    `seconds` is the best of a few measurements.
    """

    cache: Literal["on", "off"]
    streams: tuple[int, int]
    reused: tuple[Reused, ...]
    works: tuple[Work, ...]
    flops: int
    bytes: int
    seconds: float
    likeliest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeStep:
    """Step `step` feeds new token number `step`; `length` tokens are there with it, the last.

    `difference` is the largest between the logits of both ways, and `spread` the logits' standard
    deviation; they are None where only one way was run.
    """

    step: int
    length: int
    tokens: tuple[str, ...]
    modes: tuple[Mode, ...]
    difference: float | None
    spread: float | None


@torch.inference_mode()
def decode_step(
    decoder: Decoder,
    ids: Tensor,
    *,
    step: int,
    kind: CacheKind,
    name: Callable[[int], str],
    ways: tuple[Literal["on", "off"], ...] = ("on", "off"),
) -> DecodeStep:
    """For ids [1,T] that end with the step's token; `kind` is that of the cache where it is on.

    `name` gives a token's text.
    """
    modes, logits = [], []
    for way in ways:
        mode, found = _run(decoder, ids, kind if way == "on" else "none", name)
        modes.append(mode)
        logits.append(found)
    both = len(logits) == 2
    return DecodeStep(
        step=step,
        length=ids.shape[1],
        tokens=tuple(name(id_) for id_ in ids[0].tolist()),
        modes=tuple(modes),
        difference=float((logits[0] - logits[1]).abs().max()) if both else None,
        spread=float(logits[0].std()) if both else None,
    )


def _run(
    decoder: Decoder, ids: Tensor, kind: CacheKind, name: Callable[[int], str]
) -> tuple[Mode, Tensor]:
    spec, length = decoder.spec, ids.shape[1]
    before = ids[:, :0] if kind == "none" else ids[:, :-1]
    cache = make_cache(kind, spec, planned=length)
    if cache is not None:
        Stepper(decoder, cache, planned=length).feed(before)
    best, logits, begun, runs = float("inf"), torch.empty(0), _now(decoder), 0
    while runs < _REPEATS[0] or (runs < _REPEATS[1] and _now(decoder) - begun < _PATIENCE_SECONDS):
        stepper = Stepper(decoder, cache and cache.fork(), planned=length)
        stepper.ids = before
        start = _now(decoder)
        logits = stepper.feed(ids[:, before.shape[1] :])
        best, runs = min(best, _now(decoder) - start), runs + 1
    held = 0 if kind == "none" else length - 1
    works = forward_work(
        spec,
        new=length - held,
        held=held,
        cached=kind != "none",
        element_bytes=decoder.dtype.itemsize,
        piece=PREFILL_CHUNK,
        held_in=decoder.bytes_a_number(),
    )
    flops, moved = total(works)
    mode = Mode(
        cache="off" if kind == "none" else "on",
        streams=(held, length - 1),
        reused=_reused(decoder, held) if held else (),
        works=works,
        flops=flops,
        bytes=moved,
        seconds=best,
        likeliest=name(int(logits.argmax())),
    )
    return mode, logits


def _reused(decoder: Decoder, held: int) -> tuple[Reused, ...]:
    found = []
    for at, layer in enumerate(decoder.spec.layers):
        keys = held if layer.window is None else min(held, layer.window - 1)
        found.append(Reused(layer=at, keys=keys if layer.mixer == "attention" else None))
    return tuple(found)


def _now(decoder: Decoder) -> float:
    if decoder.device.type == "cuda":
        torch.cuda.synchronize(decoder.device)
    elif decoder.device.type == "mps":
        torch.mps.synchronize()
    return time.perf_counter()
