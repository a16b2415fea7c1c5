"""Taps on every row: what they show adds up, and outside of them nothing is left or run."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from types import CodeType, FrameType

import pytest
import torch
from torch import Tensor

from llmcli.model import Decoder, taps
from llmcli.model.attend import Attending
from llmcli.model.block import Block
from llmcli.model.edits import scale_mlp, skip_layer, zero_head
from llmcli.model.taps import LAYER_PARTS, Site, attending, has_neurons, tapped
from tests.insight.decoders import ALL, decoder_of, ids_for
from tests.oracle import Row
from tests.tiny import random_decoder, random_parameters, tiny_spec

rows = pytest.mark.parametrize("row", ALL, ids=lambda row: row.name)
EXACT = {"rtol": 1e-9, "atol": 1e-9}


def _every_site(decoder: Decoder) -> list[Site]:
    return [
        Site(part, layer)
        for layer in range(decoder.spec.num_layers)
        for part in LAYER_PARTS
        if part != "neurons" or has_neurons(decoder, layer)
    ]


@torch.inference_mode()
def _seen(decoder: Decoder, ids: Tensor) -> tuple[dict[Site, Tensor], Tensor]:
    seen: dict[Site, Tensor] = {}

    def keep(site: Site) -> Callable[[Tensor], None]:
        return lambda value: seen.__setitem__(site, value)

    with tapped(decoder, {site: keep(site) for site in _every_site(decoder)}):
        logits = decoder(ids, last_only=False)
    return seen, logits


@rows
def test_the_stream_is_what_is_added_to_it(row: Row) -> None:
    decoder = decoder_of(row)
    ids = ids_for(decoder.spec)
    seen, logits = _seen(decoder, ids)
    with torch.inference_mode():
        assert torch.equal(decoder(ids, last_only=False), logits)
    for layer in range(decoder.spec.num_layers):
        at = {part: seen[Site(part, layer)] for part in LAYER_PARTS if Site(part, layer) in seen}
        if decoder.spec.residual == "post":
            block = decoder.layers[layer]
            assert isinstance(block, Block)
            middle = block.attn_norm(at["layer_in"] + at["attn_added"])
            torch.testing.assert_close(at["mlp_in"], middle, **EXACT)
            out = block.mlp_norm(middle + at["mlp_added"])
        else:
            out = at["layer_in"] + at["attn_added"] + at["mlp_added"]
        torch.testing.assert_close(at["layer_out"], out, **EXACT)
        if layer:
            assert at["layer_in"] is seen[Site("layer_out", layer - 1)]


@rows
def test_recorded_weights_make_the_fused_result(row: Row, monkeypatch) -> None:
    monkeypatch.setattr(taps, "_WEIGHT_ROWS", 8)  # several pieces, and a rest
    decoder = decoder_of(row)
    ids, spec = ids_for(decoder.spec), decoder.spec
    fused: list[tuple[Tensor, Tensor]] = []
    kinds = {type(one) for index in range(spec.num_layers) if (one := attending(decoder, index))}
    for kind in kinds:
        _spy(monkeypatch, kind, fused)
    pieces: dict[int, list[Tensor]] = {
        index: [] for index in range(spec.num_layers) if attending(decoder, index)
    }

    def watch(layer: int) -> Callable[[int, Tensor], None]:
        def take(start: int, weights: Tensor) -> None:
            assert start == sum(piece.shape[2] for piece in pieces[layer])
            pieces[layer].append(weights)

        return take

    with torch.inference_mode(), tapped(decoder, {}, {index: watch(index) for index in pieces}):
        decoder(ids)
    assert len(fused) == len(pieces)
    for (v, out), weights in zip(fused, pieces.values(), strict=True):
        whole = torch.cat(weights, 2)
        tokens = ids.shape[1]
        assert whole.shape == (1, spec.num_heads, tokens, tokens)
        assert not whole.triu(1).any()
        sums = whole.sum(-1)
        assert (sums < 1).all() if spec.sinks else torch.allclose(sums, torch.ones_like(sums))
        values = v.repeat_interleave(spec.num_heads // v.shape[1], 1)
        torch.testing.assert_close(whole @ values, out, **EXACT)


def _spy(monkeypatch, kind: type[Attending], fused: list[tuple[Tensor, Tensor]]) -> None:
    own = kind.attend

    def attend(self: Attending, q: Tensor, k: Tensor, v: Tensor, visibility: object) -> Tensor:
        out = own(self, q, k, v, visibility)  # type: ignore[arg-type]
        fused.append((v, out))
        return out

    monkeypatch.setattr(kind, "attend", attend)


def _calls(run: Callable[[], Tensor]) -> list[CodeType]:
    """The Python functions that a run calls, in order."""
    called: list[CodeType] = []

    def note(frame: FrameType, event: str, _arg: object) -> None:
        if event == "call":
            called.append(frame.f_code)

    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
    return called


@torch.inference_mode()
def test_outside_of_taps_a_step_runs_the_same_code_as_ever() -> None:
    decoder = random_decoder()
    ids = ids_for(decoder.spec, 1)

    def step() -> Tensor:
        logits: Tensor = decoder(ids)
        return logits

    first = step()
    before = _calls(step)
    seen: list[Tensor] = []

    def watched() -> None:
        sites = dict.fromkeys(_every_site(decoder), seen.append)
        with tapped(decoder, sites, {0: lambda *_: None}):
            assert any(code.co_filename == taps.__file__ for code in _calls(step))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        watched()
    assert len(seen) == len(_every_site(decoder))
    assert _calls(step) == before
    assert not any(code.co_filename == taps.__file__ for code in before)
    assert torch.equal(step(), first)
    for module in decoder.modules():
        assert not module._forward_hooks
        assert not module._forward_pre_hooks
        assert "attend" not in module.__dict__


@torch.inference_mode()
def _edited(decoder: Decoder, edits: dict[Site, taps.Tap]) -> Tensor:
    with tapped(decoder, edits):
        logits: Tensor = decoder(ids_for(decoder.spec), last_only=False)
    return logits


def _with(change: str, edit: Callable[[Tensor], Tensor], spec: object = None) -> Decoder:
    used = tiny_spec() if spec is None else spec
    parameters = random_parameters(used, dtype=torch.float64)  # type: ignore[arg-type]
    parameters[change] = edit(parameters[change])
    return Decoder.filled(used, parameters.items()).eval()  # type: ignore[arg-type]


def test_a_head_set_to_zero_is_a_head_whose_columns_are_zero() -> None:
    def without(weight: Tensor) -> Tensor:
        weight[:, 16:32] = 0
        weight[:, 48:64] = 0
        return weight

    decoder = random_decoder()
    got = _edited(decoder, zero_head(decoder, 1, frozenset({1, 3})))
    expected = _edited(_with("layers.1.attn.o_proj.weight", without), {})
    torch.testing.assert_close(got, expected, **EXACT)


@pytest.mark.parametrize("scale", [1.0, 0.25])
def test_a_scaled_mlp_is_one_with_a_scaled_matrix(scale: float) -> None:
    spec = replace(tiny_spec(), residual_scale=scale)
    decoder = random_decoder(spec)
    expected = _edited(_with("layers.0.mlp.down_proj.weight", lambda w: w * 0.5, spec), {})
    torch.testing.assert_close(_edited(decoder, scale_mlp(0, 0.5)), expected, **EXACT)


def test_a_skipped_layer_is_one_that_is_not_there() -> None:
    spec = tiny_spec()
    fewer = {
        name: tensor
        for name, tensor in random_parameters(spec, dtype=torch.float64).items()
        if not name.startswith("layers.1.")
    }
    shorter = Decoder.filled(replace(spec, layers=spec.layers[:1]), fewer.items()).eval()
    torch.testing.assert_close(
        _edited(random_decoder(), skip_layer(1)), _edited(shorter, {}), **EXACT
    )


def test_what_an_edit_puts_in_place_is_what_is_added() -> None:
    decoder = random_decoder(replace(tiny_spec(), residual_scale=0.5))
    edits: dict[Site, taps.Tap] = {
        Site("attn_added", 0): torch.ones_like,
        Site("mlp_added", 0): torch.ones_like,
    }
    streams: dict[str, Tensor] = {}
    edits[Site("layer_in", 0)] = lambda value: streams.__setitem__("in", value)
    edits[Site("layer_out", 0)] = lambda value: streams.__setitem__("out", value)
    _edited(decoder, edits)
    torch.testing.assert_close(streams["out"], streams["in"] + 2, **EXACT)
