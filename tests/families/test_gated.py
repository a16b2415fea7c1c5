"""Gated attention (arXiv 2505.06708) in qwen3 files: no model of transformers computes it.

The reference is transformers' Qwen3, whose o_proj is given its input times the sigmoid of the
gates. These come of a projection of the layer's own input, computed apart.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from llmcli.cache import CacheKind, make_cache
from llmcli.checkpoint.directory import ModelDir
from llmcli.engine.load import Loaded, load_decoder
from llmcli.errors import CheckpointError
from llmcli.families import read_spec
from llmcli.generation.stepper import Stepper
from llmcli.model import Decoder
from llmcli.spec import DecoderSpec, OutputGate
from tests.families.rows import qwen3
from tests.oracle import PROMPT, Oracle, Row, assert_close, build
from tests.tiny import TINY

HEADS, KV_HEADS, DIM = 4, 2, 16
GROUP = HEADS // KV_HEADS
# Gates a query head.
WIDTHS: dict[OutputGate, int] = {"headwise": 1, "elementwise": DIM}

gates = pytest.mark.parametrize("kind", get_args(OutputGate))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Oracle:
    return build(Row(name="gated", config=qwen3._config), tmp_path_factory.mktemp("gated"))


@pytest.fixture
def gated(plain: Oracle, kind: OutputGate, tmp_path: Path) -> tuple[Loaded, Tensor]:
    """Our decoder of a gated checkpoint, and the reference's logits [T,V]."""
    generator = torch.Generator().manual_seed(5)
    tensors = load_file(plain.folder / "model.safetensors")
    handles = []
    for index, layer in enumerate(plain.model.model.layers):
        projections = [
            torch.randn(WIDTHS[kind], 64, generator=generator) * 0.3 for _ in range(HEADS)
        ]
        name = f"model.layers.{index}.self_attn.q_proj.weight"
        tensors[name] = _side_by_side(tensors[name], projections)
        handles += _hook(layer.self_attn, projections)
    with torch.inference_mode():
        logits = plain.model(plain.ids).logits[0]
    for handle in handles:
        handle.remove()
    save_file(tensors, tmp_path / "model.safetensors")
    config: dict[str, Any] = json.loads((plain.folder / "config.json").read_text())
    config |= {"use_qk_norm": True, "qkv_bias": False, f"{kind}_attn_output_gate": True}
    (tmp_path / "config.json").write_text(json.dumps(config))
    return load_decoder(ModelDir.open(tmp_path), device="cpu", dtype="float32"), logits


def _side_by_side(queries: Tensor, projections: list[Tensor]) -> Tensor:
    """Rows as the published files hold them: a kv head's queries, then the gates of these."""
    rows = []
    for kv_head in range(KV_HEADS):
        heads = range(kv_head * GROUP, (kv_head + 1) * GROUP)
        rows += [queries[head * DIM : (head + 1) * DIM] for head in heads]
        rows += [projections[head] for head in heads]
    return torch.cat(rows)


def _hook(attention: nn.Module, projections: list[Tensor]) -> list[Any]:
    seen: dict[str, Tensor] = {}

    def keep_input(_: nn.Module, args: tuple[Tensor, ...], named: dict[str, Any]) -> None:
        seen["x"] = named["hidden_states"] if "hidden_states" in named else args[0]

    def gate(_: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor]:
        heads = [
            args[0][..., head * DIM : (head + 1) * DIM] * torch.sigmoid(seen["x"] @ rows.T)
            for head, rows in enumerate(projections)
        ]
        return (torch.cat(heads, -1),)

    return [
        attention.register_forward_pre_hook(keep_input, with_kwargs=True),
        attention.o_proj.register_forward_pre_hook(gate),
    ]


@gates
def test_whole_forward(plain: Oracle, gated: tuple[Loaded, Tensor], kind: OutputGate) -> None:
    loaded, expected = gated
    assert (loaded.spec.output_gate, loaded.warnings) == (kind, ())
    with torch.inference_mode():
        assert_close(loaded.decoder(plain.ids, last_only=False)[0], expected)


@pytest.mark.parametrize("cache", get_args(CacheKind))
@gates
def test_step_by_step(
    plain: Oracle, gated: tuple[Loaded, Tensor], kind: OutputGate, cache: CacheKind
) -> None:
    loaded, expected = gated
    stepper = Stepper(loaded.decoder, make_cache(cache, loaded.spec))
    got = [stepper.feed(plain.ids[:, :PROMPT])]
    got += [stepper.feed(new) for new in plain.ids[:, PROMPT:].split(1, dim=1)]
    assert_close(torch.cat(got), expected[PROMPT - 1 :])


@pytest.mark.parametrize(
    "alter",
    [
        lambda gate: torch.zeros_like(gate),
        lambda gate: gate.flip(0),
        lambda gate: gate.roll(1, 0),
    ],
    ids=["halves", "reversed", "rolled"],
)
@gates
def test_other_gates_lose_parity(
    plain: Oracle,
    gated: tuple[Loaded, Tensor],
    kind: OutputGate,
    alter: Callable[[Tensor], Tensor],
) -> None:
    loaded, expected = gated
    parameters = dict(loaded.decoder.named_parameters())
    altered = {
        name: alter(tensor) if name.endswith("attn.gate_proj.weight") else tensor
        for name, tensor in parameters.items()
    }
    with torch.inference_mode():
        ours = Decoder.filled(loaded.spec, altered.items())(plain.ids, last_only=False)[0]
    assert (ours - expected).abs().max() > 0.01 * expected.std()


def _spec(**changes: Any) -> DecoderSpec:
    return read_spec({**TINY, "model_type": "qwen3", **changes})[1]


def test_no_gate_unless_asked_for() -> None:
    assert _spec().output_gate is None
    assert _spec(headwise_attn_output_gate=False).output_gate is None


def test_norms_of_queries_and_keys_may_be_absent() -> None:
    assert _spec().qk_norm == "per_head"
    assert _spec(use_qk_norm=False).qk_norm is None


def test_both_gates_are_refused() -> None:
    with pytest.raises(CheckpointError, match="both headwise_attn_output_gate and elementwise"):
        _spec(headwise_attn_output_gate=True, elementwise_attn_output_gate=True)
