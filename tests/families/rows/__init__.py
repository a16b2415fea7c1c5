"""One file a family, each with ROWS: the checkpoints on which parity and sensitivity are tested.

A new family needs a file here and nothing else: it is found by its place.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from tests.oracle import Row

ROWS: list[Row] = [
    row
    for found in iter_modules(__path__)
    for row in import_module(f"{__name__}.{found.name}").ROWS
]
