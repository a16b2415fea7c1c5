"""One layer of the decoder.

x ──┬───────────────────────(+)──┬─────────────────(+)── out
    └─ attn_norm ─ attention ─┘  └─ mlp_norm ─ mlp ─┘
"""

from __future__ import annotations

from torch import Tensor, nn

from llmcli.model.attention import Attention, Context
from llmcli.model.mlp import make_mlp
from llmcli.model.norm import make_norm
from llmcli.spec import DecoderSpec


class Block(nn.Module):
    """Pre-norm residual block: each part reads the normed stream and adds to it."""

    def __init__(self, spec: DecoderSpec) -> None:
        super().__init__()
        self.attn_norm = make_norm(spec)
        self.attn = Attention(spec)
        self.mlp_norm = make_norm(spec)
        self.mlp = make_mlp(spec)

    def forward(self, x: Tensor, layer: int, context: Context) -> Tensor:
        x = x + self.attn(self.attn_norm(x), layer, context)
        out: Tensor = x + self.mlp(self.mlp_norm(x))
        return out
