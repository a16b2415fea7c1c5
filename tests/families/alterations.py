"""Every way in which one fact of a spec can be wrong while its weights still fit.

A new field of DecoderSpec (or a new kind in one) needs an alteration here: a test counts them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from unittest import mock

import torch
from torch import Tensor

from llmcli.model import attention
from llmcli.spec import DecoderSpec, Learned, LinearScaling, Llama3Scaling, Rope, parameter_shapes

# The altered spec, or None where the spec has no such fact.
Alter = Callable[[DecoderSpec], DecoderSpec | None]


@dataclass(frozen=True, slots=True)
class Alteration:
    """`field` is the field of DecoderSpec, LayerSpec or Rope that it shows to be used."""

    name: str
    field: str
    alter: Alter


def _ropes(change: Callable[[Rope], Rope | None]) -> Alter:
    """Change the rotary table of every layer."""

    def alter(spec: DecoderSpec) -> DecoderSpec | None:
        ropes = [layer.rope and change(layer.rope) for layer in spec.layers]
        if not all(ropes):
            return None
        layers = (replace(one, rope=rope) for one, rope in zip(spec.layers, ropes, strict=True))
        return replace(spec, layers=tuple(layers))

    return alter


def _without_rope(spec: DecoderSpec) -> DecoderSpec | None:
    if not any(layer.rope for layer in spec.layers):
        return None
    return replace(spec, layers=tuple(replace(layer, rope=None) for layer in spec.layers))


def _scaling_factor(rope: Rope) -> Rope | None:
    return rope.scaling and replace(rope, scaling=replace(rope.scaling, factor=1.0))


def _llama3(name: str, value: float) -> Alter:
    def change(rope: Rope) -> Rope | None:
        if not isinstance(rope.scaling, Llama3Scaling):
            return None
        return replace(rope, scaling=replace(rope.scaling, **{name: value}))

    return _ropes(change)


def _shifted_positions(spec: DecoderSpec) -> DecoderSpec | None:
    if not isinstance(spec.positions, Learned):
        return None
    # One position less, so that the table keeps its rows.
    moved = Learned(spec.positions.offset + 1)
    return replace(spec, positions=moved, max_positions=spec.max_positions - 1)


def _switched_off(field: str) -> Alter:
    return lambda spec: replace(spec, **{field: False}) if getattr(spec, field) else None


_OTHER_ACTIVATION = {"silu": "gelu", "gelu": "gelu_tanh", "gelu_tanh": "gelu", "relu": "silu"}

ALTERATIONS = [
    Alteration(
        "eps",
        "norm_eps",
        lambda spec: replace(spec, norm_eps=1e-6 if spec.norm_eps > 1e-3 else 0.03),
    ),
    Alteration(
        "scale", "attn_scale", lambda spec: replace(spec, attn_scale=spec.attn_scale * 2**0.5)
    ),
    Alteration(
        "activation",
        "activation",
        lambda spec: replace(spec, activation=_OTHER_ACTIVATION[spec.activation]),
    ),
    Alteration(
        "mean kept",
        "norm",
        lambda spec: replace(spec, norm="rms") if spec.norm == "layer" else None,
    ),
    Alteration(
        "mean taken off",
        "norm",
        lambda spec: replace(spec, norm="layer") if spec.norm == "rms" else None,
    ),
    Alteration(
        "no gate", "mlp", lambda spec: replace(spec, mlp="plain") if spec.mlp == "gated" else None
    ),
    Alteration(
        "head tied",
        "tie_embeddings",
        lambda spec: None if spec.tie_embeddings else replace(spec, tie_embeddings=True),
    ),
    Alteration("no qkv biases", "attn_bias", _switched_off("attn_bias")),
    Alteration("no output bias", "attn_out_bias", _switched_off("attn_out_bias")),
    Alteration("no mlp biases", "mlp_bias", _switched_off("mlp_bias")),
    Alteration("positions shifted", "positions", _shifted_positions),
    Alteration(
        "no positions", "positions", lambda spec: spec.positions and replace(spec, positions=None)
    ),
    Alteration("no rope", "rope", _without_rope),
    Alteration("theta", "theta", _ropes(lambda rope: replace(rope, theta=rope.theta * 1.5))),
    Alteration("half the rotary dim", "dim", _ropes(lambda rope: replace(rope, dim=rope.dim // 2))),
    Alteration(
        "no rope scaling",
        "scaling",
        _ropes(lambda rope: rope.scaling and replace(rope, scaling=None)),
    ),
    Alteration("rope scaling factor", "scaling", _ropes(_scaling_factor)),
    Alteration(
        "rope scaling of another kind",
        "scaling",
        _ropes(
            lambda rope: (
                (
                    rope.scaling
                    and not isinstance(rope.scaling, LinearScaling)
                    and replace(rope, scaling=LinearScaling(rope.scaling.factor))
                )
                or None
            )
        ),
    ),
    Alteration("low_freq_factor", "scaling", _llama3("low_freq_factor", 2.0)),
    Alteration("high_freq_factor", "scaling", _llama3("high_freq_factor", 8.0)),
    Alteration("original_max_positions", "scaling", _llama3("original_max_positions", 48)),
]

# Sizes: a wrong one does not fit the weights, so the load plan refuses it.
SIZES = frozenset(
    """
    vocab_size hidden_size intermediate_size num_heads num_kv_heads head_dim max_positions layers
    """.split()
)


def refit(parameters: Mapping[str, Tensor], spec: DecoderSpec) -> dict[str, Tensor]:
    """The parameters that `spec` wants: those at hand, and neutral norms for what they lack."""
    fitted = {}
    for name, shape in parameter_shapes(spec).items():
        held = parameters.get(name)
        if held is None:
            assert "norm" in name, f"nothing can stand for {name}"
            held = torch.zeros(shape) if name.endswith(".bias") else torch.ones(shape)
        assert held.shape == shape
        fitted[name] = held
    return fitted


@contextmanager
def interleaved_groups() -> Iterator[None]:
    """Query heads read key-value heads as [0, 1, 0, 1] rather than as [0, 0, 1, 1]."""
    right = attention.attend

    def wrong(q: Tensor, k: Tensor, v: Tensor, *rest: object) -> Tensor:
        group = q.shape[1] // k.shape[1]
        return right(q, k.repeat(1, group, 1, 1), v.repeat(1, group, 1, 1), *rest)

    with mock.patch.object(attention, "attend", wrong):
        yield
