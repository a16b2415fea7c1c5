"""How far two decoders' next tokens lie apart, on distributions that a hand can work out."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from llmcli.bench import divergence
from llmcli.bench.divergence import Window, diverge, windows
from llmcli.errors import GenerationError
from llmcli.model import Decoder


@dataclass(frozen=True)
class _Spec:
    vocab_size: int


class _Bigrams:
    """Stands for a decoder: what comes next depends on the last id alone, by a table [V,V]."""

    def __init__(self, table: Tensor) -> None:
        self._table, self.spec = table, _Spec(len(table))

    def hidden(self, ids: Tensor) -> Tensor:
        return torch.nn.functional.one_hot(ids, len(self._table)).to(torch.float32)

    def unembed(self, x: Tensor) -> Tensor:
        return self._table[x.argmax(-1)]


def _bigrams(table: list[list[float]]) -> Decoder:
    return cast(Any, _Bigrams(torch.tensor(table).log()))


def test_two_ids_by_hand() -> None:
    ours, theirs = _bigrams([[1 / 2, 1 / 2], [1 / 4, 3 / 4]]), _bigrams([[3 / 4, 1 / 4]] * 2)
    found = diverge(ours, theirs, [Window((0, 1, 0), 1), Window((0, 0), 1)])
    after_0 = 1 / 2 * math.log(2 / 3) + 1 / 2 * math.log(2)
    after_1 = 1 / 4 * math.log(1 / 3) + 3 / 4 * math.log(3)
    assert found.tokens == 3
    assert found.kl_mean == pytest.approx((2 * after_0 + after_1) / 3, rel=1e-6)
    assert (found.kl_median, found.kl_max) == pytest.approx((after_0, after_1), rel=1e-6)
    assert found.kl_p99 == pytest.approx(after_0 + 0.98 * (after_1 - after_0), rel=1e-6)
    # What came had the probabilities 1/2, 1/4, 1/2 with the one, 1/4, 3/4, 3/4 with the other.
    assert found.reference_perplexity == pytest.approx(16 ** (1 / 3), rel=1e-6)
    assert found.perplexity == pytest.approx((64 / 9) ** (1 / 3), rel=1e-6)
    # After 0 the two are equally likely with ours, of which the first counts; after 1 they differ.
    assert found.same_top == pytest.approx(2 / 3)


def test_a_decoder_is_not_away_from_itself() -> None:
    one = _bigrams([[0.9, 0.1], [0.3, 0.7]])
    found = diverge(one, one, [Window((0, 1, 1, 0), 1)])
    assert (found.kl_mean, found.kl_max, found.same_top) == (0, 0, 1)
    assert found.perplexity == found.reference_perplexity


@pytest.mark.parametrize(("logits", "wide"), [(1, 1), (21, 7), (35, 14), (10**6, 10**6)])
def test_how_much_is_held_at_a_time_changes_nothing(
    logits: int, wide: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = torch.Generator().manual_seed(0)
    ours, theirs = (cast(Any, _Bigrams(torch.randn(7, 7, generator=generator))) for _ in "ab")
    text = windows([], torch.randint(0, 7, (40,), generator=generator).tolist(), 12)
    expected = diverge(ours, theirs, text)
    monkeypatch.setattr(divergence, "_LOGITS", logits)
    monkeypatch.setattr(divergence, "_WIDE", wide)
    told: list[tuple[int, int]] = []
    assert diverge(ours, theirs, text, on_progress=lambda *at: told.append(at)) == expected
    assert told[-1] == (39, 39)


def test_what_is_not_finite_is_refused() -> None:
    broken = _bigrams([[math.nan, 1], [1, 1]])
    with pytest.raises(GenerationError, match="not finite"):
        diverge(_bigrams([[1.0, 1]] * 2), broken, [Window((0, 1), 1)])


@pytest.mark.parametrize("prefix", [[], [9], [9, 8]])
@pytest.mark.parametrize("count", [1, 2, 3, 7, 40])
@pytest.mark.parametrize("most", [3, 5, 64])
def test_every_id_is_predicted_once(prefix: list[int], count: int, most: int) -> None:
    body = list(range(100, 100 + count))
    made = windows(prefix, body, most)
    assert [id_ for one in made for id_ in one.ids[one.lead :]] == body[0 if prefix else 1 :]
    for one in made:
        assert len(one.ids) <= most
        assert one.scored >= 1
        before = body[body.index(one.ids[one.lead]) - 1 :][:1]
        assert list(one.ids[: one.lead]) == (prefix or before)
    assert len({one.scored for one in made}) <= 2


@pytest.mark.parametrize(
    "made",
    [
        lambda: windows([], [], 9),
        lambda: windows([], [1], 9),
        lambda: windows([1], [], 9),
        lambda: windows([], [1, 2, 3], 1),
    ],
)
def test_nothing_to_predict_makes_no_window(made: Callable[[], list[Window]]) -> None:
    assert made() == []
