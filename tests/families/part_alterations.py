"""Every way in which one fact of a decoder's parts can be wrong while its weights still fit.

A new field of Alibi, Sinusoidal, Experts, Latent or GatedDelta needs an alteration here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from llmcli.spec import Alibi, DecoderSpec, Experts, GatedDelta, Latent, Sinusoidal
from tests.families.alterations import Alter, Alteration

PARTS = (Alibi, Sinusoidal, Experts, Latent, GatedDelta)

# Wrong ones do not fit the weights, so the load plan refuses them.
PART_SIZES = frozenset(
    """
    count intermediate_size shared_size kv_rank nope_dim rope_dim value_dim query_rank
    num_value_heads conv_kernel
    """.split()
)
# Shown to be used by test_routers.py, as it only matters in lower precision.
PART_ROUNDING = frozenset({"wide_router"})


def _positions(kind: type, **changes: Any) -> Alter:
    def alter(spec: DecoderSpec) -> DecoderSpec | None:
        if not isinstance(spec.positions, kind):
            return None
        moved: Any = replace(spec.positions, **changes)
        return None if moved == spec.positions else replace(spec, positions=moved)

    return alter


def _other_rounding(spec: DecoderSpec) -> DecoderSpec | None:
    # The slopes of up to eight heads are powers of two, which bfloat16 holds exactly.
    if not isinstance(spec.positions, Alibi) or spec.num_heads <= 8:
        return None
    other = replace(spec.positions, rounded=not spec.positions.rounded)
    return replace(spec, positions=other)


def _experts(change: Callable[[Experts], Experts | None]) -> Alter:
    def alter(spec: DecoderSpec) -> DecoderSpec | None:
        experts = spec.experts and change(spec.experts)
        return experts and replace(spec, experts=experts)

    return alter


def _off(field: str) -> Alter:
    return _experts(lambda one: replace(one, **{field: False}) if getattr(one, field) else None)


def _other_router(one: Experts) -> Experts:
    return replace(one, router="sigmoid" if one.router == "softmax" else "softmax")


def _one_group_more(one: Experts) -> Experts | None:
    return replace(one, top_groups=one.top_groups + 1) if one.top_groups < one.groups else None


def _no_groups(one: Experts) -> Experts | None:
    narrowed = one.top_groups < one.groups
    return replace(one, groups=1, top_groups=1) if narrowed else None


def _other_group_score(one: Experts) -> Experts | None:
    if one.top_groups == one.groups:
        return None
    return replace(one, group_score="best" if one.group_score == "best_two" else "best_two")


def _latent(change: Callable[[Latent], Latent | None]) -> Alter:
    def alter(spec: DecoderSpec) -> DecoderSpec | None:
        latent = spec.latent and change(spec.latent)
        return latent and replace(spec, latent=latent)

    return alter


def _linear(change: Callable[[GatedDelta], GatedDelta]) -> Alter:
    def alter(spec: DecoderSpec) -> DecoderSpec | None:
        used = any(layer.mixer == "gated_delta" for layer in spec.layers)
        return replace(spec, linear=change(spec.linear)) if used and spec.linear else None

    return alter


def _half_as_wide(one: GatedDelta) -> GatedDelta:
    return replace(one, num_key_heads=one.num_key_heads * 2, key_dim=one.key_dim // 2)


PART_ALTERATIONS = [
    Alteration("ALiBi not scaled", "scaled", _positions(Alibi, scaled=False)),
    Alteration("ALiBi scaled", "scaled", _positions(Alibi, scaled=True)),
    Alteration("ALiBi rounded or not", "rounded", _other_rounding),
    Alteration("sinusoids not shifted", "offset", _positions(Sinusoidal, offset=0)),
    Alteration("other router", "router", _experts(_other_router)),
    Alteration(
        "fewer experts a token",
        "top_k",
        _experts(lambda one: replace(one, top_k=one.top_k - 1) if one.top_k > 1 else None),
    ),
    Alteration(
        "not normalised",
        "normalise",
        # All softmax scores together sum to 1 anyway.
        _experts(
            lambda one: (
                replace(one, normalise=not one.normalise)
                if one.router == "sigmoid" or one.top_k < one.count
                else None
            )
        ),
    ),
    Alteration("other scale", "scale", _experts(lambda one: replace(one, scale=1.5 * one.scale))),
    Alteration("no router bias", "router_bias", _off("router_bias")),
    Alteration(
        "no correction",
        "correction_bias",
        _experts(
            lambda one: (
                replace(one, correction_bias=False)
                if one.correction_bias and one.top_k < one.count
                else None
            )
        ),
    ),
    Alteration("no expert biases", "expert_bias", _off("expert_bias")),
    Alteration("no groups", "groups", _experts(_no_groups)),
    Alteration("a group more", "top_groups", _experts(_one_group_more)),
    Alteration("groups scored otherwise", "group_score", _experts(_other_group_score)),
    Alteration("shared expert not gated", "shared_gate", _off("shared_gate")),
    Alteration("latent eps", "norm_eps", _latent(lambda one: replace(one, norm_eps=0.03))),
    Alteration(
        "no latent biases",
        "bias",
        _latent(lambda one: replace(one, bias=False) if one.bias else None),
    ),
    Alteration("key heads cut otherwise", "num_key_heads", _linear(_half_as_wide)),
    Alteration("keys cut otherwise", "key_dim", _linear(_half_as_wide)),
]
