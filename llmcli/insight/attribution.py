"""Attribution: what each part of the decoder adds to one token's logit, exactly.

The residual stream is a sum of parts. A norm behind a sum is, with its statistics held fixed at
what they really are, linear in the parts; so the logit is a sum over parts too, taken in float64.
Must not know terminals.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn

from llmcli.generation.finite import require_finite
from llmcli.model import Decoder
from llmcli.model.block import Block
from llmcli.model.embedding import sinusoids
from llmcli.model.mlp import PlainMLP
from llmcli.model.norm import affine_at
from llmcli.model.taps import LayerPart, Site, Tap, head_projection, tapped
from llmcli.spec import Learned, Sinusoidal

Kind = Literal["token", "position", "head", "mlp", "bias", "rounding"]
_PARTS: tuple[LayerPart, ...] = ("layer_in", "heads", "attn_out", "mlp_in", "mlp_out", "layer_out")


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """`share` is what the part adds to the logit; `head` is there only of kind head.

    A bias is that of an output projection, a norm or the output head: `of` names it. `rounding`
    is what the model's own arithmetic makes of the sum.
    """

    kind: Kind
    layer: int | None = None
    head: int | None = None
    of: str = ""
    share: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """`parts` sum to `logit`, which the model gives token `id` after `position`.

    A cap on the logits is not linear: `logit` is from before `softcap`. `shown` is how many
    parts a drawing names.
    """

    id: int
    token: str
    after: str
    position: int
    logit: float
    softcap: float | None
    parts: tuple[Part, ...]
    shown: int


@torch.inference_mode()
def attribute(
    decoder: Decoder,
    ids: Tensor,
    *,
    position: int,
    name: Callable[[int], str],
    token: int | None = None,
    shown: int = 10,
) -> Attribution:
    """For ids [1,T]; `token` is by default the one that the model finds likeliest there.

    `name` gives a token's text. Raises GenerationError for logits that are not finite.
    """
    # Later tokens cannot change what comes of earlier ones.
    seen = _watch(decoder, ids[:, : position + 1])
    logits = decoder.lm_head.uncapped(_before_head(decoder, seen), decoder.embed_tokens)
    require_finite(decoder, ids[:, : position + 1], logits)
    if token is None:
        token = int(logits.argmax())
    stream = _Stream(decoder, seen)
    stream.embed(position)
    for layer in range(decoder.spec.num_layers):
        stream.layer(layer)
    parts, logit = stream.unembed(token), float(logits[token])
    left = logit - sum(part.share for part in parts)
    return Attribution(
        id=token,
        token=name(token),
        after=name(int(ids[0, position])),
        position=position,
        logit=logit,
        softcap=decoder.spec.logit_softcap,
        parts=(*parts, Part(kind="rounding", share=left)),
        shown=shown,
    )


def _watch(decoder: Decoder, ids: Tensor) -> dict[Site, Tensor]:
    """Values [C] of every site that attribution needs, at the last id."""
    seen: dict[Site, Tensor] = {}

    def keep(site: Site) -> Tap:
        def tap(value: Tensor) -> None:
            seen[site] = value[0, -1].clone()

        return tap

    sites = [Site(part, layer) for layer in range(decoder.spec.num_layers) for part in _PARTS]
    sites += [Site("token_rows"), Site("normed")]
    with tapped(decoder, {site: keep(site) for site in sites}):
        decoder(ids)
    return seen


def _before_head(decoder: Decoder, seen: dict[Site, Tensor]) -> Tensor:
    normed = seen[Site("normed")]
    return normed if decoder.head_proj is None else decoder.head_proj(normed)


class _Stream:
    """The residual stream at one position as a list of parts [C], while the layers go by."""

    def __init__(self, decoder: Decoder, seen: dict[Site, Tensor]) -> None:
        self._decoder, self._seen = decoder, seen
        self._parts: list[Part] = []
        self._rows = torch.empty(0, decoder.spec.hidden_size, dtype=torch.float64)

    def embed(self, position: int) -> None:
        decoder, spec = self._decoder, self._decoder.spec
        row = self._seen[Site("token_rows")]
        row = row * torch.tensor(spec.embed_scale, dtype=row.dtype, device=row.device)
        if decoder.embed_proj is not None:
            row = decoder.embed_proj(row)
        self._add([Part(kind="token")], row)
        if isinstance(spec.positions, Learned | Sinusoidal):
            place = torch.tensor([position + spec.positions.offset], device=decoder.device)
            if decoder.embed_positions is not None:
                row = decoder.embed_positions(place)
            else:
                row = sinusoids(place, spec.hidden_size, decoder.dtype)
            self._add([Part(kind="position")], row)
        if decoder.embed_norm is not None:
            self._norm(decoder.embed_norm, self._rows.sum(0), "embedding norm")

    def layer(self, layer: int) -> None:
        block = self._decoder.layers[layer]
        assert isinstance(block, Block)
        post = self._decoder.spec.residual == "post"
        attn_out, mlp_out = self._at("attn_out", layer), self._at("mlp_out", layer)
        self._part(block, layer, block.post_attn_norm, attn_out, *self._heads(layer))
        if post:
            stream = self._at("layer_in", layer) + attn_out
            self._norm(block.attn_norm, stream, "attention norm", layer)
        self._part(block, layer, block.post_mlp_norm, mlp_out, *self._mlp(layer, block))
        if post:
            stream = self._at("mlp_in", layer) + mlp_out
            self._norm(block.mlp_norm, stream, "MLP norm", layer)

    def unembed(self, token: int) -> list[Part]:
        """The parts with what they add to the token's logit before any cap."""
        decoder, scale = self._decoder, self._decoder.spec.logit_scale
        self._norm(decoder.norm, self._at("layer_out", len(decoder.layers) - 1), "final norm")
        row, bias = decoder.lm_head.row(token, decoder.embed_tokens)
        rows = self._rows
        if decoder.head_proj is not None:
            rows = rows @ decoder.head_proj.matrix().to("cpu", torch.float64).T
        shares = (rows @ _wide(row) * scale).tolist()
        found = [replace(one, share=share) for one, share in zip(self._parts, shares, strict=True)]
        if bias is not None:
            found.append(Part(kind="bias", of="output head", share=float(bias) * scale))
        return found

    def _heads(self, layer: int) -> tuple[list[Part], Tensor]:
        """What each head makes of the output projection, and the projection's bias."""
        projection, count = head_projection(self._decoder, layer)
        mixed = self._seen[Site("heads", layer)].view(count, -1)
        alone = torch.diag_embed(mixed.T).permute(1, 2, 0)  # [H,H,D]: zero but for one's own
        zero = torch.zeros_like(mixed).view(1, -1)
        rows = projection(torch.cat((alone.flatten(1), zero)))
        return self._split(
            rows, [Part(kind="head", layer=layer, head=head) for head in range(count)]
        )

    def _mlp(self, layer: int, block: Block) -> tuple[list[Part], Tensor]:
        out = self._at("mlp_out", layer)[None]
        bias = torch.zeros_like(out)
        if isinstance(block.mlp, PlainMLP):
            down = block.mlp.down_proj
            inner = self._seen[Site("mlp_in", layer)].new_zeros(1, down.shape[1])
            bias = _wide(down(inner))
        return self._split(torch.cat((out + 0, bias)), [Part(kind="mlp", layer=layer)])

    def _split(self, rows: Tensor, parts: list[Part]) -> tuple[list[Part], Tensor]:
        """Rows with a bias in each, and that bias as the last row, apart from one another."""
        rows = _wide(rows)
        bias = rows[-1:]
        if not bias.any():
            return parts, rows[:-1]
        of = "attention output" if parts[0].kind == "head" else "MLP output"
        return [
            *parts,
            Part(kind="bias", layer=parts[0].layer, of=of),
        ], torch.cat((rows[:-1] - bias, bias))

    def _part(
        self,
        block: Block,
        layer: int,
        norm: nn.Module,
        at: Tensor,
        parts: list[Part],
        rows: Tensor,
    ) -> None:
        """Add parts to the stream, behind the norm that may stand between."""
        affine = affine_at(norm, at)
        if affine is not None:
            rows = affine.apply(rows)
            if affine.bias is not None:
                rows = torch.cat((rows, affine.bias[None]))
                kind = "attention" if norm is block.post_attn_norm else "MLP"
                parts = [*parts, Part(kind="bias", layer=layer, of=f"norm behind {kind}")]
        self._add(parts, rows * block.residual_scale)

    def _norm(self, norm: nn.Module, at: Tensor, of: str, layer: int | None = None) -> None:
        """The whole stream goes through a norm."""
        affine = affine_at(norm, at)
        if affine is None:
            return
        self._rows = affine.apply(self._rows)
        if affine.bias is not None:
            self._add([Part(kind="bias", layer=layer, of=of)], affine.bias)

    def _add(self, parts: list[Part], rows: Tensor) -> None:
        self._parts += parts
        self._rows = torch.cat((self._rows, _wide(rows).view(len(parts), -1)))

    def _at(self, part: LayerPart, layer: int) -> Tensor:
        return _wide(self._seen[Site(part, layer)])


def _wide(x: Tensor) -> Tensor:
    """Not every device has float64."""
    return x.to("cpu", torch.float64)
