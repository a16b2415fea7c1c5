"""What stands where in the tables of numbers that kernels are told, so that both sides agree.

A job is all that an entry point gets: for each of its fields two integers. Of an array these are
its address and the numbers in a row of it.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np


def numbered(count: int, start: int = 0) -> Iterator[Any]:
    """start, start + 1, ... Python's own integers would be types to numba, one function each."""
    return map(np.int64, range(start, start + count))


# Kernels.
PRODUCT, STEP, SEVERAL = numbered(3)

# A matrix: how it is held, addresses of it, its scales and minima, the columns of a group, the
# address of a float32 bias or 0, its shape, and how many columns are unpacked at a time.
KIND, AT, SCALES, MINIMA, GROUP, BIAS, ROWS, COLUMNS, RUN = numbered(9)
FIELDS = 9
# So many rows are unpacked before they are multiplied, of so many columns where groups allow it:
# a panel and the rows of x that it meets stay in a core's nearest cache (32 KiB).
PANEL, RUN_OF_COLUMNS = 24, 288
# So many vectors at a time meet rows too few for a panel.
AT_ONCE = 8
# So many tokens of a row attend together, to so many keys at a time, which are whole panels.
TOKENS_TOGETHER, KEYS_TOGETHER = 48, 120
# Numbers that are worked on together.
CHUNK = 8
FLOAT32, FLOAT16, BFLOAT16, INT8, INT8_GROUPS, INT4 = numbered(6)

# Matrices of a layer, each FIELDS numbers in `tables`; what a layer lacks has no rows.
Q, K, V, OUT, GATE, UP, DOWN = numbered(7)
MATRICES = 7
# Behind them: addresses of float32 vectors, or 0.
(
    ATTN_NORM,
    ATTN_NORM_BIAS,
    POST_ATTN_NORM,
    POST_ATTN_NORM_BIAS,
    MLP_NORM,
    MLP_NORM_BIAS,
    POST_MLP_NORM,
    POST_MLP_NORM_BIAS,
    Q_NORM,
    Q_NORM_BIAS,
    K_NORM,
    K_NORM_BIAS,
) = numbered(12, MATRICES * FIELDS)
TABLE = MATRICES * FIELDS + 12

# The integers that all layers share.
(
    LAYERS,
    HIDDEN,
    HEADS,
    KV_HEADS,
    HEAD_DIM,
    INNER,
    NORM,
    QK_NORM,
    ACTIVATION,
    RESIDUAL,
    GATED,
) = numbered(11)
FACTS = 11
NO_NORM, RMS_NORM, LAYER_NORM = numbered(3)
NO_QK_NORM, PER_HEAD, EACH_HEAD, WHOLE = numbered(4)
SILU, GELU, GELU_TANH, GELU_QUICK, RELU = numbered(5)
# What norms stand before and behind a part, their addresses tell.
ONE_AFTER_THE_OTHER, SIDE_BY_SIDE, NORM_AFTER_SUM = numbered(3)

# The float32 numbers that all layers share.
EPS, NORM_OFFSET, ATTN_SCALE, RESIDUAL_SCALE, SOFTCAP = numbered(5)
REALS = 5

# For each layer: where its cache is, floats between heads and between rows of the batch; the slot
# of each row's first new token, and the slots that token sees; how many a later one sees at most,
# or 0; how it turns, and where cos and sin [tokens, dim] lie.
(
    KEYS,
    VALUES,
    HEAD_STRIDE,
    ROW_STRIDE,
    SLOT,
    FIRST,
    LAST,
    WINDOW,
    ROPE,
    COS,
    SIN,
    ROPE_DIM,
) = numbered(12)
PLACE = 12
NO_ROPE, HALVES, PAIRS = numbered(3)

# The fields of a job. COUNT holds how many tokens there are, and how many of each row. PADS are
# the slots in front of each row that it does not see, and have no address where there are none.
(
    COUNT,
    BARRIER,
    SHARED_FACTS,
    SHARED_REALS,
    TABLES,
    PLACES,
    PADS,
    STREAM,
    QKV,
    ATTENDED,
    PEAKS,
    WEIGHTS,
    PART,
    GATED_INNER,
    UP_INNER,
    INNER_OUT,
    X,
    NORMED,
    QUERIES,
    SCORES,
    SCRATCH,
    MATRIX,
    Y,
) = numbered(23)
JOB = 23

# In the barrier: the count of arrivals, and a cache line further, whether somebody gave up.
ARRIVED, ABANDONED = 0, 8
BARRIER_SIZE = 16
