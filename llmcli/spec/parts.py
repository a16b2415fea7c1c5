"""Facts of the parts that only some decoders have: experts, latent and linear attention."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Router = Literal["softmax", "sigmoid"]
# How a group of experts is scored: by its best expert, or by the sum of its two best.
GroupScore = Literal["best", "best_two"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """A sparse mixture of MLPs: a router sends each token to `top_k` of `count` experts.

    Router scores become weights: over all experts, then of the chosen ones alone, divided by
    their sum where `normalise`, times `scale`. With `groups` > 1 the choice is first narrowed
    to `top_groups` groups. `correction_bias` shifts the choice but not the weights.
    `wide_router` keeps router and correction in float32, whatever the working dtype.
    `shared_size` is the width of an MLP that sees every token, gated where `shared_gate`.
    """

    count: int
    top_k: int
    intermediate_size: int
    router: Router = "softmax"
    normalise: bool = True
    scale: float = 1.0
    router_bias: bool = False
    correction_bias: bool = False
    wide_router: bool = False
    expert_bias: bool = False
    groups: int = 1
    top_groups: int = 1
    group_score: GroupScore = "best"
    shared_size: int | None = None
    shared_gate: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Latent:
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434).

    Keys and values are made of one vector of `kv_rank` numbers a token, plus `rope_dim` rotated
    numbers shared by all heads. `query_rank` None projects the queries directly.
    A head's query and key are `nope_dim` plain and `rope_dim` rotated numbers.
    """

    kv_rank: int
    nope_dim: int
    rope_dim: int
    value_dim: int
    query_rank: int | None = None
    norm_eps: float = 1e-6
    bias: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GatedDelta:
    """Gated delta rule (arXiv 2412.06464): a state matrix a head instead of cached keys."""

    num_key_heads: int
    num_value_heads: int
    key_dim: int
    value_dim: int
    conv_kernel: int
