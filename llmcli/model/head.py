"""The unembedding: from the width of the embedding to logits."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from llmcli.model.linear import Weighted
from llmcli.spec import DecoderSpec


class Head(Weighted):
    """The unembedding; a tied one owns no matrix and reads the embedding's."""

    def __init__(self, spec: DecoderSpec) -> None:
        super().__init__(spec.vocab_size, spec.embed_width)
        self.bias: nn.Parameter | None = None
        self.tied = spec.tie_embeddings
        if self.tied:
            self.weight = None
        if spec.head_bias:
            self.bias = nn.Parameter(torch.empty(spec.vocab_size), requires_grad=False)
        self.scale = spec.logit_scale
        self.softcap = spec.logit_softcap

    def forward(self, x: Tensor, embedding: Weighted) -> Tensor:
        logits = self.uncapped(x, embedding)
        if self.softcap is not None:
            logits = torch.tanh(logits / self.softcap) * self.softcap
        return logits

    def uncapped(self, x: Tensor, embedding: Weighted) -> Tensor:
        """Logits [...,V] as they are before a soft cap."""
        logits = (embedding if self.tied else self).times(x, self.bias)
        return logits if self.scale == 1 else logits * self.scale

    def row(self, token: int, embedding: Weighted) -> tuple[Tensor, Tensor | None]:
        """What reads a token's logit from x, before the scale: a row, and its bias if any."""
        owner = embedding if self.tied else self
        row = owner.rows(torch.tensor(token, device=owner.device))
        return row, None if self.bias is None else self.bias[token]
