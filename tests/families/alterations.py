"""Every way in which one fact of a spec can be wrong while its weights still fit.

A new field of DecoderSpec (or a new kind in one) needs an alteration here: a test counts them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import UnionType
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from llmcli.model import attend as fused
from llmcli.model import attention
from llmcli.spec import (
    DecoderSpec,
    DynamicScaling,
    Experts,
    LayerSpec,
    Learned,
    LinearScaling,
    Llama3Scaling,
    LongRopeScaling,
    Rope,
    YarnScaling,
    parameter_shapes,
)

# The altered spec, or None where the spec has no such fact.
Alter = Callable[[DecoderSpec], DecoderSpec | None]


@dataclass(frozen=True, slots=True)
class Alteration:
    """`field` is the field of DecoderSpec, LayerSpec or Rope that it shows to be used."""

    name: str
    field: str
    alter: Alter


def _layers(change: Callable[[LayerSpec], LayerSpec | None]) -> Alter:
    """Change the layers that have the fact."""

    def alter(spec: DecoderSpec) -> DecoderSpec | None:
        layers = tuple(change(layer) or layer for layer in spec.layers)
        return None if layers == spec.layers else replace(spec, layers=layers)

    return alter


def _ropes(change: Callable[[Rope], Rope | None]) -> Alter:
    """Change the rotary tables that have the fact."""

    def of_layer(layer: LayerSpec) -> LayerSpec | None:
        rope = layer.rope and change(layer.rope)
        return rope and replace(layer, rope=rope)

    return _layers(of_layer)


def _without_rope(spec: DecoderSpec) -> DecoderSpec | None:
    # Latent attention has a part of each head for it and cannot be without.
    if spec.latent is not None or not any(layer.rope for layer in spec.layers):
        return None
    return replace(spec, layers=tuple(replace(layer, rope=None) for layer in spec.layers))


def _scaling(kinds: type | UnionType, change: Callable[[Any], Any]) -> Alter:
    """Change the context scaling of those kinds."""

    def of_rope(rope: Rope) -> Rope | None:
        if not isinstance(rope.scaling, kinds):
            return None
        return replace(rope, scaling=change(rope.scaling))

    return _ropes(of_rope)


def _scaling_field(kinds: type | UnionType, name: str, value: float) -> Alter:
    return _scaling(kinds, lambda scaling: replace(scaling, **{name: value}))


_WITH_FACTOR = LinearScaling | DynamicScaling | Llama3Scaling | YarnScaling


def _set(field: str, neutral: object) -> Alter:
    """The neutral value in the place of any other."""

    def alter(spec: DecoderSpec) -> DecoderSpec | None:
        return None if getattr(spec, field) == neutral else replace(spec, **{field: neutral})

    return alter


def _experts(change: Callable[[Experts], Experts | None]) -> Alter:
    def alter(spec: DecoderSpec) -> DecoderSpec | None:
        experts = spec.experts and change(spec.experts)
        return experts and replace(spec, experts=experts)

    return alter


def _window(change: Callable[[int], int | None]) -> Alter:
    def of_layer(layer: LayerSpec) -> LayerSpec | None:
        return None if layer.window is None else replace(layer, window=change(layer.window))

    return _layers(of_layer)


def _new_window(layer: LayerSpec) -> LayerSpec | None:
    free = layer.window is None and layer.mixer == "attention"
    return replace(layer, window=40) if free else None


def _other_layers_slide(spec: DecoderSpec) -> DecoderSpec | None:
    windows = [layer.window for layer in spec.layers]
    if None not in windows or not any(windows):
        return None
    (window,) = {one for one in windows if one is not None}
    layers = (replace(one, window=None if one.window else window) for one in spec.layers)
    return replace(spec, layers=tuple(layers))


def _shifted_positions(spec: DecoderSpec) -> DecoderSpec | None:
    if not isinstance(spec.positions, Learned):
        return None
    # One position less, so that the table keeps its rows.
    moved = Learned(spec.positions.offset + 1)
    return replace(spec, positions=moved, max_positions=spec.max_positions - 1)


def _switched_off(field: str) -> Alter:
    return lambda spec: replace(spec, **{field: False}) if getattr(spec, field) else None


_OTHER_ACTIVATION = {
    "silu": "gelu",
    "gelu": "gelu_tanh",
    "gelu_tanh": "gelu",
    "gelu_quick": "gelu",
    "relu": "silu",
    "clamped_swiglu": "silu",
}
_OTHER_RESIDUAL = {
    "pre": "post",
    "post": "pre",
    "sandwich": "pre",
    "post_inside": "pre",
    "parallel": "pre",
    "parallel_shared": "pre",
}

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
        "no gate",
        "mlp",
        lambda spec: (
            replace(spec, mlp="plain")
            if spec.mlp == "gated" and spec.activation != "clamped_swiglu"
            else None
        ),
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
    Alteration("rope scaling factor", "scaling", _scaling_field(_WITH_FACTOR, "factor", 1.0)),
    Alteration(
        "rope scaling of another kind",
        "scaling",
        _scaling(
            DynamicScaling | Llama3Scaling | YarnScaling | LongRopeScaling,
            lambda scaling: LinearScaling(getattr(scaling, "factor", 4.0)),
        ),
    ),
    Alteration("low_freq_factor", "scaling", _scaling_field(Llama3Scaling, "low_freq_factor", 2.0)),
    Alteration(
        "high_freq_factor", "scaling", _scaling_field(Llama3Scaling, "high_freq_factor", 8.0)
    ),
    Alteration(
        "original_max_positions",
        "scaling",
        _scaling_field(Llama3Scaling | YarnScaling, "original_max_positions", 48),
    ),
    Alteration(
        "original of dynamic",
        "scaling",
        _scaling_field(DynamicScaling, "original_max_positions", 24),
    ),
    Alteration(
        "attention factor",
        "scaling",
        _scaling_field(YarnScaling | LongRopeScaling, "attention_factor", 1.0),
    ),
    Alteration("beta_fast", "scaling", _scaling_field(YarnScaling, "beta_fast", 16.0)),
    Alteration("beta_slow", "scaling", _scaling_field(YarnScaling, "beta_slow", 3.0)),
    Alteration(
        "truncate",
        "scaling",
        _scaling(YarnScaling, lambda scaling: replace(scaling, truncate=not scaling.truncate)),
    ),
    Alteration(
        "longrope's lists swapped",
        "scaling",
        _scaling(
            LongRopeScaling,
            lambda scaling: replace(scaling, short=scaling.long, long=scaling.short),
        ),
    ),
    Alteration(
        "other pairs",
        "interleaved",
        _ropes(lambda rope: replace(rope, interleaved=not rope.interleaved)),
    ),
    Alteration("window one larger", "window", _window(lambda window: window + 1)),
    Alteration("window one smaller", "window", _window(lambda window: window - 1)),
    Alteration("no window", "window", _window(lambda _: None)),
    Alteration("a window where there is none", "window", _layers(_new_window)),
    Alteration("the other layers slide", "window", _other_layers_slide),
    Alteration(
        "norm offset",
        "norm_offset",
        lambda spec: (
            replace(spec, norm_offset=1.0 - spec.norm_offset) if spec.norm == "rms" else None
        ),
    ),
    Alteration(
        "no norm biases",
        "norm_bias",
        lambda spec: (
            replace(spec, norm_bias=False) if spec.norm == "layer" and spec.norm_bias else None
        ),
    ),
    Alteration(
        "final norm", "final_norm", lambda spec: replace(spec, final_norm=not spec.final_norm)
    ),
    Alteration("no embedding norm", "embed_norm", _switched_off("embed_norm")),
    Alteration(
        "residual",
        "residual",
        lambda spec: replace(spec, residual=_OTHER_RESIDUAL[spec.residual], residual_scale=1.0),
    ),
    Alteration("residual scale", "residual_scale", _set("residual_scale", 1.0)),
    Alteration("no qk norm", "qk_norm", _set("qk_norm", None)),
    Alteration("no output gate", "output_gate", _set("output_gate", None)),
    Alteration("no cap on scores", "attn_softcap", _set("attn_softcap", None)),
    Alteration("no cap on logits", "logit_softcap", _set("logit_softcap", None)),
    Alteration("embedding scale", "embed_scale", _set("embed_scale", 1.0)),
    Alteration("logit scale", "logit_scale", _set("logit_scale", 1.0)),
    Alteration("no sinks", "sinks", _switched_off("sinks")),
    Alteration("no head bias", "head_bias", _switched_off("head_bias")),
    Alteration(
        "top_k",
        "experts",
        _experts(lambda one: replace(one, top_k=one.top_k - 1 if one.top_k > 1 else 2)),
    ),
    Alteration(
        "normalise",
        "experts",
        # All softmax scores together sum to 1 anyway.
        _experts(
            lambda one: (
                None
                if one.top_k == one.count and one.router == "softmax"
                else replace(one, normalise=not one.normalise)
            )
        ),
    ),
    Alteration(
        "expert scale", "experts", _experts(lambda one: replace(one, scale=1.5 * one.scale))
    ),
]

# Sizes: a wrong one does not fit the weights, so the load plan refuses it.
SIZES = frozenset(
    """
    vocab_size hidden_size intermediate_size num_heads num_kv_heads head_dim max_positions layers
    sparse mixer latent linear embed_size
    """.split()
)
# Shown to be used by test_norms.py, as they only matter in lower precision.
ROUNDING = frozenset({"norm_casts_first"})


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

    def wrong(right: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def attend(q: Tensor, k: Tensor, v: Tensor, *rest: object, **named: object) -> Tensor:
            group = q.shape[1] // k.shape[1]
            return right(q, k.repeat(1, group, 1, 1), v.repeat(1, group, 1, 1), *rest, **named)

        return attend

    with (
        mock.patch.object(fused, "attend", wrong(fused.attend)),
        mock.patch.object(attention, "attend_plainly", wrong(attention.attend_plainly)),
    ):
        yield
