"""A step waits for the device once: for the id, its logprob and the check, in one copy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten

from llmcli.cache import CacheKind, make_cache
from llmcli.generation.batch import Batch, BatchRow
from llmcli.generation.params import SamplingParams
from llmcli.generation.stepper import Stepper
from llmcli.generation.stop import StopRule
from llmcli.generation.strategies import StrategyOptions, make_strategy
from llmcli.model import Decoder
from llmcli.model.captured import Work
from tests.cache import other_device as elsewhere
from tests.cache.other_device import OTHER, Elsewhere, moved, other_device
from tests.tiny import random_decoder, tiny_spec

STOP = StopRule(frozenset(), 8, 99)
PARAMS = {
    "greedy": SamplingParams(temperature=0.0),
    "sample": SamplingParams(seed=1),
    "filters": SamplingParams(temperature=0.8, top_k=20, top_p=0.9, min_p=0.02, seed=1),
    "rarer filters": SamplingParams(
        typical_p=0.9, epsilon_cutoff=1e-4, eta_cutoff=1e-3, top_n_sigma=2.0, seed=1
    ),
    "penalties": SamplingParams(
        repetition_penalty=1.2, presence_penalty=0.1, frequency_penalty=0.1, seed=1
    ),
}
# Questions whose answer has to come back before Python can go on.
_ASK = {"aten::_local_scalar_dense", "aten::nonzero", "aten::masked_select", "aten::equal"}


@contextmanager
def _waits() -> Iterator[Counter[str]]:
    """Counts what goes over to the other device or comes back, by name."""
    found: Counter[str] = Counter()
    run, tolist = elsewhere._run, Elsewhere.tolist

    def counted_run(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        tensors = [one for one in tree_flatten((args, kwargs))[0] if isinstance(one, Tensor)]
        there = {isinstance(one, Elsewhere) for one in tensors}
        mixed = len({isinstance(one, Elsewhere) for one in tensors if one.ndim}) > 1
        target = kwargs.get("device")
        crosses = target is not None and tensors and (torch.device(target) == OTHER) not in there
        name = func._schema.name
        if mixed or crosses or (name in _ASK and True in there):
            found[name] += 1
        return run(func, args, kwargs)

    def counted_list(self: Elsewhere) -> Any:
        found["tolist"] += 1
        return tolist(self)

    with (
        mock.patch.object(elsewhere, "_run", counted_run),
        mock.patch.object(Elsewhere, "tolist", counted_list),
    ):
        yield found


@pytest.fixture(params=["ordinary", "captured"])
def there(request: pytest.FixtureRequest) -> Iterator[Decoder]:
    with other_device():
        decoder = moved(random_decoder(tiny_spec(model_type="mistral", sliding_window=8)))
        if request.param == "captured":
            decoder.capture(_again)
        yield decoder


def _again(work: Work) -> Work:
    return work


# What edits logits knows no cache, so each of them meets one kind, and each kind one of them.
@pytest.mark.parametrize(
    ("kind", "name"),
    [*(("ring", name) for name in PARAMS), ("growing", "filters"), ("none", "filters")],
)
def test_a_token_is_one_copy(there: Decoder, name: str, kind: CacheKind) -> None:
    strategy = make_strategy("sample", PARAMS[name], StrategyOptions())
    stepper = Stepper(there, make_cache(kind, there.spec))
    with _waits() as waits:
        for token in strategy.run(stepper, [1, 2, 3], STOP):
            if len(stepper.ids[0]) > 3:  # the first token's prompt had to be sent
                assert waits == {"tolist": 1}, token
            waits.clear()


def test_a_step_of_a_batch_is_one_copy(there: Decoder) -> None:
    cache = make_cache("growing", there.spec)
    rows = [BatchRow(prompt_ids=ids, params=PARAMS["sample"], stop=STOP) for ids in ((1, 2), (3,))]
    batch = Batch(Stepper(there, cache), rows, sampling=True)
    batch.step()
    with _waits() as waits:
        for _ in range(4):
            batch.step()
            assert waits == {"tolist": 1}
            waits.clear()


def test_the_count_sees_what_waits() -> None:
    asks: list[Callable[[Tensor], object]] = [
        lambda x: x.sum().item(),
        lambda x: bool((x > 0).all()),
        lambda x: x.cpu(),
        lambda x: x.nonzero(),
        lambda x: x[torch.zeros(1, dtype=torch.long)],
        lambda _x: torch.zeros(3).to(OTHER),
        lambda x: x.tolist(),
    ]
    with other_device(), _waits() as waits:
        x = torch.ones(4, device=OTHER)
        for at, ask in enumerate(asks, 1):
            ask(x)
            assert waits.total() == at
