"""The summary view: what kind of decoder this is, and how large."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from llmcli.insight import wording
from llmcli.insight.facts import Facts
from llmcli.spec import count_parameters, kv_bytes_per_token


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """`bytes_by_dtype` counts what the files hold; None where there is only a config.

    `quantized_bits` are those of most matrices of a quantised folder, `bits_per_parameter` is
    how many a number takes of all that is stored.
    `kv_bytes_per_token` is for 16-bit keys and values of every layer.
    """

    name: str
    family: str
    parameters: int
    layers: int
    hidden_size: int
    embedding_size: int
    vocab_size: int
    context: int
    attention: str
    windows: str
    positions: list[str]
    norm: str
    mlp: str
    experts: str | None
    activation: str
    extras: list[str]
    tied_head: bool
    bytes_by_dtype: dict[str, int] | None
    tensors: int | None
    quantized_bits: int | None
    bits_per_parameter: float | None
    kv_bytes_per_token: int
    origin: str | None
    licence: str | None
    note: str | None
    warnings: tuple[str, ...]


def summarise(facts: Facts) -> Summary:
    """From the facts alone."""
    spec, stored, parameters = facts.spec, facts.stored, count_parameters(facts.spec)
    size = None if stored is None else sum(one.nbytes for one in stored.values())
    return Summary(
        name=facts.name,
        family=facts.family,
        parameters=parameters,
        layers=spec.num_layers,
        hidden_size=spec.hidden_size,
        embedding_size=spec.embed_width,
        vocab_size=spec.vocab_size,
        context=spec.context,
        attention=wording.attention_kind(spec),
        windows=wording.window_pattern(spec),
        positions=wording.positions(spec),
        norm=wording.norm_kind(spec),
        mlp=wording.mlp_kind(spec),
        experts=wording.experts(spec),
        activation=spec.activation,
        extras=wording.extras(spec),
        tied_head=spec.tie_embeddings,
        bytes_by_dtype=None if stored is None else _bytes(facts),
        tensors=None if stored is None else len(stored),
        quantized_bits=None if facts.form is None else facts.form.bits,
        bits_per_parameter=None if size is None else 8 * size / parameters,
        kv_bytes_per_token=kv_bytes_per_token(spec, 2),
        origin=facts.source.origin,
        licence=facts.source.licence,
        note=facts.note,
        warnings=facts.notices,
    )


def _bytes(facts: Facts) -> dict[str, int]:
    total: Counter[str] = Counter()
    for tensor in (facts.stored or {}).values():
        total[tensor.dtype] += tensor.nbytes
    return dict(total.most_common())
