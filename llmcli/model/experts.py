"""A sparse mixture of experts (arXiv 1701.06538): a router sends each token to a few MLPs."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from llmcli.model.linear import Linear, WideLinear
from llmcli.model.mlp import make_mlp
from llmcli.spec import DecoderSpec, Experts


class SparseMLP(nn.Module):
    """Only the chosen experts run, each on the tokens that chose it."""

    def __init__(self, spec: DecoderSpec, facts: Experts) -> None:
        super().__init__()
        hidden = spec.hidden_size
        self.facts = facts
        router = WideLinear if facts.wide_router else Linear
        self.router = router(hidden, facts.count, bias=facts.router_bias)
        self.correction_bias: nn.Parameter | None = None
        if facts.correction_bias:
            self.correction_bias = nn.Parameter(torch.empty(facts.count), requires_grad=False)
        self.experts = nn.ModuleList(
            make_mlp(spec, facts.intermediate_size, bias=facts.expert_bias)
            for _ in range(facts.count)
        )
        self.shared: nn.Module | None = None
        if facts.shared_size is not None:
            self.shared = make_mlp(spec, facts.shared_size, bias=spec.mlp_bias)
        self.shared_gate = Linear(hidden, 1, bias=False) if facts.shared_gate else None

    def forward(self, x: Tensor) -> Tensor:
        flat = x.flatten(0, 1)  # [B*T,C]
        weights, chosen = self.route(flat)
        out = torch.zeros_like(flat)
        for index in sorted(set(chosen.flatten().tolist())):
            rows, slots = (chosen == index).nonzero(as_tuple=True)
            part = self.experts[index](flat[rows]) * weights[rows, slots, None]
            out.index_add_(0, rows, part.to(out.dtype))
        if self.shared is not None:
            every = self.shared(flat)
            out += every if self.shared_gate is None else self.shared_gate(flat).sigmoid() * every
        return out.view_as(x)

    def route(self, flat: Tensor) -> tuple[Tensor, Tensor]:
        """Weights and ids [B*T,top_k] of the experts chosen for each token."""
        facts = self.facts
        logits = self.router(flat)
        wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
        scores = wide.softmax(-1) if facts.router == "softmax" else wide.sigmoid()
        choice = scores if self.correction_bias is None else scores + self.correction_bias
        if facts.groups > 1:
            choice = choice.masked_fill(~self._open(choice), float("-inf"))
        chosen = choice.topk(facts.top_k, -1).indices
        weights = scores.gather(-1, chosen)
        if facts.normalise:
            weights = weights / weights.sum(-1, keepdim=True)
        return (weights * facts.scale).to(logits.dtype), chosen

    def _open(self, choice: Tensor) -> Tensor:
        """Boolean [B*T,count]: the experts whose group is among the best."""
        facts = self.facts
        grouped = choice.view(choice.shape[0], facts.groups, -1)
        best = 1 if facts.group_score == "best" else 2
        value = grouped.topk(best, -1).values.sum(-1)
        kept = torch.zeros_like(value, dtype=torch.bool)
        kept.scatter_(-1, value.topk(facts.top_groups, -1).indices, value=True)
        return kept.repeat_interleave(grouped.shape[-1], -1)
