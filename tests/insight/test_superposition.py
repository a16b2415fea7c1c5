"""Angles between directions against exact chance, and bounds against their own formulas."""

from __future__ import annotations

import math

import pytest
import torch

from llmcli.errors import UsageError
from llmcli.insight.superposition import WHATS, measure, random_share
from tests.insight.decoders import ALL, decoder_of
from tests.oracle import Row
from tests.tiny import random_decoder, tiny_spec


@pytest.mark.parametrize("dim", [2, 3, 64, 4096, 20000])
def test_random_shares_sum_to_one(dim: int) -> None:
    assert sum(random_share(dim, at, at + 1) for at in range(180)) == pytest.approx(1, abs=1e-6)


def test_random_shares_are_those_of_random_vectors() -> None:
    assert random_share(2, 30, 60) == pytest.approx(1 / 6)  # every angle is as likely
    assert random_share(3, 0, 60) == pytest.approx(0.25)  # a cap of the sphere
    drawn = torch.randn(2, 200_000, 16, generator=torch.Generator().manual_seed(3))
    degrees = torch.cosine_similarity(drawn[0], drawn[1], dim=-1).acos().rad2deg()
    for low, high in ((89, 91), (60, 75), (100, 140)):
        share = float(((degrees >= low) & (degrees <= high)).double().mean())
        assert random_share(16, low, high) == pytest.approx(share, abs=0.004)


def test_angles_of_known_directions() -> None:
    decoder = random_decoder(tiny_spec(), dtype=torch.float64)
    with torch.no_grad():
        rows = decoder.embed_tokens.weight.zero_()
        rows[:3, :2] = torch.tensor([[2.0, 0], [0, 0.5], [3.0, 3.0]])
    found = measure(decoder, "embedding")
    assert (found.rows, found.zero, found.sampled, found.pairs) == (320, 317, 3, 3)
    assert found.near == pytest.approx(1 / 3)
    assert found.mean == pytest.approx(60)
    assert found.deviation == pytest.approx(45 * math.sqrt(2 / 3))
    shares = {one.low: one.share for one in found.bins if one.share}
    assert sum(shares.values()) == pytest.approx(1)
    assert set(shares) <= {44, 45, 89, 90}


def test_random_directions_look_random_and_a_sample_is_told() -> None:
    decoder = random_decoder(tiny_spec(), dtype=torch.float64)
    with torch.no_grad():
        decoder.embed_tokens.weight.normal_(generator=torch.Generator().manual_seed(1))
    found = measure(decoder, "embedding")
    assert found.near == pytest.approx(found.random_near, abs=0.01)
    assert found.deviation == pytest.approx(found.random_deviation, rel=0.05)
    few = measure(decoder, "embedding", sample=50)
    assert (few.sampled, few.pairs, few.rows) == (50, 1225, 320)
    assert few == measure(decoder, "embedding", sample=50)
    assert few.mean != found.mean


def test_room_is_what_the_bounds_say() -> None:
    decoder = random_decoder(tiny_spec(hidden_size=512, num_attention_heads=4))
    found = measure(decoder, "mlp-out", layer=0)
    for one in found.room:
        cosine = math.sin(math.radians(one.off))
        caps = 10**one.caps
        # n vectors make n(n-1) caps, each of at most exp(-d c^2 / 2) of the sphere
        assert caps * caps * math.exp(-512 * cosine**2 / 2) == pytest.approx(1)
        e = cosine / (2 + cosine)
        assert 2 * e / (1 - e) == pytest.approx(cosine)
        points = 10**one.lemma + 1
        needed = 4 * math.log(points) / (e**2 / 2 - e**3 / 3)
        assert points == 2 or needed == pytest.approx(512, rel=1e-6)
    assert 10 ** found.room[-1].lemma > 2


@pytest.mark.parametrize("row", ALL, ids=lambda row: row.name)
def test_every_family_has_directions(row: Row) -> None:
    decoder = decoder_of(row)
    spec = decoder.spec
    for what in WHATS:
        if what == "unembedding" and decoder.lm_head.weight is None:
            with pytest.raises(UsageError, match="is the embedding itself"):
                measure(decoder, what)
            continue
        layer = spec.num_layers - 1 if what.startswith("mlp") else None
        found = measure(decoder, what, layer=layer)
        assert found.dim == (spec.embed_width if layer is None else spec.hidden_size)
        count = spec.vocab_size
        if layer is not None:
            facts = spec.experts if spec.layers[layer].sparse else None
            count = spec.intermediate_size
            if facts is not None:
                count = facts.count * facts.intermediate_size + (facts.shared_size or 0)
        assert found.rows == count
