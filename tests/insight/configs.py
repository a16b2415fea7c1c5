"""The facts of every family's tiny config, without a file."""

from __future__ import annotations

from functools import cache

import pytest

from llmcli.insight.facts import Facts, config_facts
from tests.families.rows import ROWS
from tests.oracle import Row, validation

EVERY_ROW = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)


@cache
def row_facts(row: Row) -> Facts:
    """From the config as transformers writes it."""
    with validation(on=row.validated):
        return config_facts(row.name, row.config().to_dict())
