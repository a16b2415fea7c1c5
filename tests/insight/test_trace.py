"""The trace's numbers against the tensors that they speak of, and a decode step's two ways."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from llmcli.cache import default_kind
from llmcli.insight.decode_step import decode_step
from llmcli.insight.trace import trace
from llmcli.model.attend import Attending
from llmcli.model.taps import LayerPart, Site, tapped
from llmcli.spec.work import forward_work, total
from tests.insight.decoders import ALL, decoder_of, ids_for
from tests.oracle import Row
from tests.tiny import random_decoder, tiny_spec

rows = pytest.mark.parametrize("row", ALL, ids=lambda row: row.name)
PARTS: tuple[LayerPart, ...] = ("layer_in", "attn_added", "mlp_in", "mlp_added", "layer_out")


@rows
def test_lengths_and_cosines(row: Row, monkeypatch) -> None:
    monkeypatch.setattr("llmcli.insight.trace._REPEATS", 1)  # no time is looked at
    decoder = decoder_of(row)
    ids, last = ids_for(decoder.spec), decoder.spec.num_layers - 1
    seen: dict[str, Tensor] = {}
    taps = {Site(part, last): (lambda v, part=part: seen.__setitem__(part, v)) for part in PARTS}
    with torch.inference_mode(), tapped(decoder, taps):
        logits = decoder(ids)
    found = trace(decoder, ids, name=str)
    one = found.layers[last]

    def length(x: Tensor) -> object:
        return pytest.approx(float(x.norm(dim=-1).mean()))

    def cosine(x: Tensor, y: Tensor) -> object:
        dots = (x * y).sum(-1) / (x.norm(dim=-1) * y.norm(dim=-1))
        return pytest.approx(float(dots.mean()))

    before = {
        "post": seen["mlp_in"],
        "parallel": seen["layer_in"],
        "parallel_shared": seen["layer_in"],
    }.get(decoder.spec.residual, seen["layer_in"] + seen["attn_added"])
    assert one.stream == length(seen["layer_in"])
    assert one.attn_added == length(seen["attn_added"])
    assert one.mlp_added == length(seen["mlp_added"])
    assert one.attn_cosine == cosine(seen["attn_added"], seen["layer_in"])
    assert one.mlp_cosine == cosine(seen["mlp_added"], before)
    assert found.stream_end == length(seen["layer_out"])
    probs = logits[0, -1].softmax(-1)
    assert found.likeliest == str(int(probs.argmax()))
    assert found.likeliest_prob == pytest.approx(float(probs.max()), rel=1e-5)


@rows
def test_shapes_are_those_of_the_tensors(row: Row, monkeypatch) -> None:
    monkeypatch.setattr("llmcli.insight.trace._REPEATS", 1)
    decoder = decoder_of(row)
    ids = ids_for(decoder.spec)
    seen: list[tuple[Tensor, ...]] = []
    for kind in {type(module) for module in decoder.modules() if isinstance(module, Attending)}:
        own = kind.attend

        def attend(self, q, k, v, visibility, own=own):  # type: ignore[no-untyped-def]
            seen.append((q, k, v))
            return own(self, q, k, v, visibility)

        monkeypatch.setattr(kind, "attend", attend)
    shapes = {one.name: one.shape for one in trace(decoder, ids, name=str).values}
    hidden = (1, 21, decoder.spec.hidden_size)
    assert shapes["ids"] == (1, 21)
    assert shapes["embedding"] == shapes["stream after the layer"] == hidden
    assert shapes["logits of the last token"] == (1, 1, decoder.spec.vocab_size)
    if decoder.spec.layers[0].mixer == "attention":
        q, k, v = seen[0]
        assert (shapes["queries"], shapes["keys"], shapes["values"]) == (q.shape, k.shape, v.shape)
        assert shapes["attention weights"] == (*q.shape[:3], 21)
    else:
        assert "queries" not in shapes


def test_times_add_up() -> None:
    found = trace(random_decoder(), ids_for(tiny_spec()), name=str)
    parts = [found.embed_seconds, found.head_seconds]
    for one in found.layers:
        parts += [one.attn_seconds, one.mlp_seconds, one.other_seconds]
    assert min(parts) > 0
    # What lies between one layer's end and the next one's start is a loop of Python.
    assert found.total_seconds * 0.5 < sum(parts) <= found.total_seconds * 1.0001


@rows
def test_a_step_with_and_without_the_cache_comes_to_the_same(
    row: Row, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "llmcli.insight.decode_step._REPEATS", (2, 2)
    )  # a second one finds the cache as the first
    decoder = decoder_of(row)
    spec = decoder.spec
    ids = ids_for(spec)
    found = decode_step(decoder, ids, step=3, name=str, kind=default_kind(spec))
    on, off = found.modes
    assert (found.step, found.length) == (3, 21)
    assert found.tokens == tuple(str(id_) for id_ in ids[0].tolist())
    assert (on.cache, on.streams, off.cache, off.streams) == ("on", (20, 20), "off", (0, 20))
    assert on.likeliest == off.likeliest
    assert found.difference is not None
    assert found.spread is not None
    assert found.difference < 1e-9 * found.spread + 1e-9
    assert off.reused == ()
    for one, layer in zip(on.reused, spec.layers, strict=True):
        expected = 20 if layer.window is None else min(20, layer.window - 1)
        assert one.keys == (expected if layer.mixer == "attention" else None)
    assert (on.flops, on.bytes) == total(forward_work(spec, new=1, held=20, element_bytes=8))
    assert off.flops == total(forward_work(spec, new=21, cached=False))[0]
    assert off.flops > 4 * on.flops


def test_one_way_alone() -> None:
    found = decode_step(
        random_decoder(), ids_for(tiny_spec()), step=1, name=str, kind="growing", ways=("off",)
    )
    assert [mode.cache for mode in found.modes] == ["off"]
    assert (found.difference, found.spread) == (None, None)
