"""The oracle of each row, built once a session."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.oracle import Oracle, Row, build

MakeOracle = Callable[[Row], Oracle]


@pytest.fixture(scope="session")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> MakeOracle:
    """A row's checkpoint and transformers' own model of it."""
    built: dict[str, Oracle] = {}

    def get(row: Row) -> Oracle:
        if row.name not in built:
            built[row.name] = build(row, tmp_path_factory.mktemp("row"))
        return built[row.name]

    return get
