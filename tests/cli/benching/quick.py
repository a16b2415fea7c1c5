"""The command line of a short trial, and its report."""

from __future__ import annotations

import json
from typing import Any

from tests.cli.conftest import Invoke

BENCH = ("bench-cache", "-m", "stories260k")
QUICK = (*BENCH, "--prompt-tokens", "5,9", "--new-tokens", "6", "--repeats", "3")


def report_of(invoke: Invoke, *args: str) -> Any:
    result = invoke(*QUICK, "--output", "json", *args)
    assert result.code == 0, result.err
    return json.loads(result.out)
