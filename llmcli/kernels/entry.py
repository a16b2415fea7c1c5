"""What is called from outside: the entry points, and calls that make numba compile them."""

import numpy as np

from llmcli.kernels import dots, parts
from llmcli.kernels import step as steps
from llmcli.kernels.step import product, step

__all__ = ["compile_all", "dots", "new_barrier", "parts", "product", "step", "steps"]


def new_barrier():
    """Two counters a cache line apart; see kernels/step.py."""
    return np.zeros(16, np.int64)


def compile_all():
    """Call each entry point once, with work for nobody but arguments of the right types."""
    matrix, barrier = np.zeros(dots.FIELDS, np.int64), new_barrier()
    row = np.zeros(1, np.float32)
    rows = np.zeros((1, 1), np.float32)
    product(0, 1, matrix, rows, rows, rows)
    facts, reals = np.zeros(11, np.int64), np.zeros(5, np.float32)
    tables = np.zeros((1, steps.TABLE), np.int64)
    places = np.zeros((1, steps.PLACE), np.int64)
    inner = np.zeros((3, 1), np.float32)
    shared = (row, row, inner, rows, rows, rows)
    own = (rows, rows, rows, rows, rows)
    step(0, 1, barrier, facts, reals, tables, places, row, shared, own)
