"""Contrastive search against a plain loop of full forwards, in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from llmcli.cache import make_cache
from llmcli.errors import UsageError
from llmcli.generation.params import SamplingParams
from llmcli.generation.stepper import Stepper
from llmcli.generation.stop import StopRule
from llmcli.generation.strategies.base import StrategyOptions
from llmcli.generation.strategies.contrastive import Contrastive
from llmcli.generation.strategies.sequential import Greedy
from llmcli.generation.token import Token
from llmcli.model import Decoder
from tests.tiny import random_decoder, small_spec

VOCAB, NEW = 30, 15
PROMPT = [1, 2, 3, 4]
kinds = pytest.mark.parametrize("kind", ["growing", "none"])


@pytest.fixture(scope="module", params=range(2))
def decoder(request: pytest.FixtureRequest) -> Decoder:
    return random_decoder(small_spec(VOCAB), seed=request.param)


def _run(
    decoder: Decoder,
    kind: Any = "growing",
    *,
    params: SamplingParams | None = None,
    stepper: Stepper | None = None,
    new: int = NEW,
    **options: Any,
) -> list[Token]:
    strategy = Contrastive(params or SamplingParams(), StrategyOptions(**options))
    stepper = stepper or Stepper(decoder, make_cache(kind, decoder.spec), chunk=3)
    return list(strategy.run(stepper, PROMPT, StopRule(frozenset(), new, 100)))


def _ids(tokens: list[Token]) -> list[int]:
    return [token.id for token in tokens]


@torch.inference_mode()
def _plain(decoder: Decoder, alpha: float, count: int) -> list[int]:
    """The formula of the paper, one candidate and one whole forward at a time."""

    def states(ids: list[int]) -> torch.Tensor:
        seen: list[torch.Tensor] = []
        handle = decoder.norm.register_forward_hook(lambda *given: seen.append(given[2]))
        decoder(torch.tensor([ids]), last_only=False)
        handle.remove()
        return seen[0][0]

    ids = list(PROMPT)
    for _ in range(NEW):
        probs = decoder(torch.tensor([ids]))[0, -1].softmax(-1)
        best, chosen = -torch.inf, -1
        for id_ in probs.argsort(descending=True)[:count].tolist():
            *past, last = states([*ids, id_])
            alike = max(torch.cosine_similarity(last, one, dim=0).item() for one in past)
            score = (1 - alpha) * probs[id_].item() - alpha * alike
            if score > best:
                best, chosen = score, id_
        ids.append(chosen)
    return ids[len(PROMPT) :]


@kinds
@pytest.mark.parametrize(("alpha", "count"), [(0.6, 4), (0.3, 7), (1.0, 3)])
def test_as_the_plain_loop(decoder: Decoder, kind: str, alpha: float, count: int) -> None:
    got = _ids(_run(decoder, kind, penalty_alpha=alpha, num_candidates=count))
    assert got == _plain(decoder, alpha, count)
    assert got != _ids(_run(decoder, kind, penalty_alpha=0.0, num_candidates=count))


@pytest.mark.parametrize("options", [{"penalty_alpha": 0.0}, {"num_candidates": 1}])
def test_no_penalty_or_one_candidate_is_greedy(decoder: Decoder, options: Any) -> None:
    stepper = Stepper(decoder, make_cache("growing", decoder.spec))
    greedy = Greedy(SamplingParams(), StrategyOptions()).run(
        stepper, PROMPT, StopRule(frozenset(), NEW, 100)
    )
    assert _ids(_run(decoder, **options)) == _ids(list(greedy))


def test_more_candidates_than_ids(decoder: Decoder) -> None:
    assert len(_run(decoder, num_candidates=10**6)) == NEW


def test_a_forbidden_id_is_no_candidate(decoder: Decoder) -> None:
    """Two ids are left of thirty, fewer than the candidates asked for."""
    params = SamplingParams(suppress=tuple(range(2, VOCAB)))
    got = _ids(_run(decoder, params=params, penalty_alpha=1.0, num_candidates=8))
    assert set(got) <= {0, 1}


def test_a_prefix_left_in_the_cache_counts_as_any_other(decoder: Decoder) -> None:
    cache = make_cache("growing", decoder.spec)
    Stepper(decoder, cache).feed(torch.tensor([PROMPT[:2]]))
    assert _ids(_run(decoder, stepper=Stepper(decoder, cache))) == _ids(_run(decoder))


@pytest.mark.parametrize(
    ("option", "value"), [("penalty_alpha", 1.5), ("penalty_alpha", -0.1), ("num_candidates", 0)]
)
def test_out_of_range(option: str, value: float) -> None:
    with pytest.raises(UsageError, match=option.replace("_", "-")):
        StrategyOptions(**{option: value})
