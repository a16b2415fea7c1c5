"""Teams of several sizes over kernels that are compiled once."""

import pytest

from llmcli.kernels.team import Team


@pytest.fixture(scope="session")
def team() -> Team:
    return Team(2)
