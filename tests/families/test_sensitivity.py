"""The parity tests can fail: with any one fact of a spec altered, parity is lost."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from llmcli.checkpoint.directory import ModelDir
from llmcli.checkpoint.plan import make_plan
from llmcli.errors import CheckpointError
from llmcli.families import read_spec
from llmcli.spec import DecoderSpec, LayerSpec, Learned, Rope, parameter_shapes
from tests.families.agreement import agrees, differs
from tests.families.alterations import (
    ALTERATIONS,
    ROUNDING,
    SIZES,
    Alteration,
    interleaved_groups,
)
from tests.families.conftest import MakeOracle
from tests.families.rows import ROWS
from tests.oracle import Row

rows = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)


def test_every_fact_has_an_alteration() -> None:
    named = {field.name for kind in (DecoderSpec, LayerSpec, Rope) for field in fields(kind)}
    assert named == {alteration.field for alteration in ALTERATIONS} | SIZES | ROUNDING


@pytest.mark.parametrize("alteration", ALTERATIONS, ids=lambda one: one.name)
def test_every_alteration_applies_to_some_row(alteration: Alteration, oracle: MakeOracle) -> None:
    assert any(alteration.alter(oracle(row).loaded.spec) for row in ROWS)


def _fact(spec: DecoderSpec, field: str) -> object:
    """The value of a field of the spec, or the values of its layers or rotary tables."""
    if field in DecoderSpec.__dataclass_fields__:
        return getattr(spec, field)
    if field in LayerSpec.__dataclass_fields__:
        return [getattr(layer, field) for layer in spec.layers]
    return [layer.rope and getattr(layer.rope, field) for layer in spec.layers]


# A row is there for the facts that the one which stands for its family lacks. Those that they
# share are altered in that one, and in the others in turns.
@rows
def test_any_altered_fact_loses_parity(row: Row, oracle: MakeOracle) -> None:
    theirs = oracle(row)
    spec = theirs.loaded.spec
    family = row.name.split("-")[0]
    standing = [one for one in ROWS if one.bfloat16 and one.name.split("-")[0] == family]
    assert standing
    known = [oracle(one).loaded.spec for one in standing if one is not row]
    tried = [
        one
        for at, one in enumerate(ALTERATIONS, ROWS.index(row))
        if (at % 6 == 0 and not row.bfloat16)
        or all(_fact(spec, one.field) != _fact(other, one.field) for other in known)
    ]
    kept = [one.name for one in tried if not differs(theirs, one)]
    assert not kept, f"altered without any effect: {kept}"


@rows
def test_wrong_grouping_loses_parity(row: Row, oracle: MakeOracle) -> None:
    theirs = oracle(row)
    spec = theirs.loaded.spec
    if 1 < spec.num_kv_heads < spec.num_heads:
        with interleaved_groups():
            assert not agrees(theirs, theirs.loaded.decoder)


@rows
def test_any_altered_size_is_refused(row: Row, oracle: MakeOracle) -> None:
    theirs = oracle(row)
    directory = ModelDir.open(theirs.folder)
    family, spec, _ = read_spec(directory.config)
    wrong = [
        replace(spec, vocab_size=spec.vocab_size - 1),
        replace(spec, layers=spec.layers[:1]),
        replace(spec, layers=spec.layers * 2),
    ]
    if spec.latent is None:
        more_heads = replace(spec, num_heads=spec.num_heads * 2, num_kv_heads=spec.num_kv_heads * 2)
        wrong += [more_heads, replace(spec, head_dim=spec.head_dim * 2)]
    if not all(layer.sparse for layer in spec.layers):
        wrong.append(replace(spec, intermediate_size=spec.intermediate_size + 2))
    if spec.experts is not None:
        experts = spec.experts
        flipped = (replace(layer, sparse=not layer.sparse) for layer in spec.layers)
        wrong.append(replace(spec, layers=tuple(flipped)))
        wrong.append(replace(spec, experts=replace(experts, count=experts.count * 2)))
        inner = experts.intermediate_size + 2
        wrong.append(replace(spec, experts=replace(experts, intermediate_size=inner)))
    if spec.num_kv_heads > 1 and spec.latent is None:
        wrong.append(replace(spec, num_kv_heads=1))
    if isinstance(spec.positions, Learned):
        wrong.append(replace(spec, max_positions=spec.max_positions + 1))
    for altered in wrong:
        # Rules that no config can make contradict their spec: our own bug, asserted.
        with pytest.raises(
            (CheckpointError, AssertionError), match=r"do not fit|a group|no rule makes"
        ):
            make_plan(
                parameter_shapes(altered),
                directory.tensors(),
                family.rules(altered),
                num_layers=altered.num_layers,
                num_experts=altered.experts.count if altered.experts else 0,
                prefixes=family.prefixes,
            )
