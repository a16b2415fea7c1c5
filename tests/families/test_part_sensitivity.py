"""The parity tests can fail: with any one fact of a part altered, parity is lost."""

from __future__ import annotations

from dataclasses import fields

import pytest

from tests.families.agreement import differs
from tests.families.conftest import MakeOracle
from tests.families.part_alterations import PART_ALTERATIONS, PART_ROUNDING, PART_SIZES, PARTS
from tests.families.rows import ROWS
from tests.oracle import Row

rows = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)


def test_every_fact_of_a_part_has_an_alteration() -> None:
    named = {field.name for kind in PARTS for field in fields(kind)}
    altered = {alteration.field for alteration in PART_ALTERATIONS}
    assert named == altered | PART_SIZES | PART_ROUNDING


def test_every_alteration_applies_to_some_row(oracle: MakeOracle) -> None:
    specs = [oracle(row).loaded.spec for row in ROWS]
    idle = [one.name for one in PART_ALTERATIONS if not any(map(one.alter, specs))]
    assert not idle


@rows
def test_any_altered_fact_loses_parity(row: Row, oracle: MakeOracle) -> None:
    theirs = oracle(row)
    kept = [one.name for one in PART_ALTERATIONS if not differs(theirs, one)]
    assert not kept, f"altered without any effect: {kept}"
