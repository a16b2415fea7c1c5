"""One decode step through all layers, run by a few threads side by side.

Each thread owns a share of the rows of every matrix and a share of the cached keys. Norms and
sums over the stream are done by every thread for itself, as waiting would cost more. Threads
meet five times a layer:

  norm | q, k, v rows | attention over a share of the keys | merge, output rows |
  norm | inner rows   | down rows | back to the stream
"""

import numpy as np

from llmcli.kernels.dots import FIELDS, ROWS, rows_times, rows_times_each
from llmcli.kernels.parts import LAYER_NORM, activate, attend, merge, norm, rotate
from llmcli.kernels.words import (
    add_atomically,
    floats,
    give_way,
    inlined,
    kept,
    load_atomically,
    numbered,
)

# Matrices of a layer, each FIELDS numbers in `tables`; what a layer lacks has no rows.
Q, K, V, OUT, GATE, UP, DOWN = numbered(7)
MATRICES = np.int64(7)
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

# `facts`: the integers that all layers share.
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
# RESIDUAL; what norms stand before and behind a part, their addresses tell.
ONE_AFTER_THE_OTHER, SIDE_BY_SIDE, NORM_AFTER_SUM = numbered(3)
# QK_NORM
NO_QK_NORM, PER_HEAD, EACH_HEAD, WHOLE = numbered(4)
# `reals`
EPS, NORM_OFFSET, ATTN_SCALE, RESIDUAL_SCALE, SOFTCAP = numbered(5)

# `places`: for each layer, where its cache is and where the new token goes.
KEYS, VALUES, HEAD_STRIDE, SLOT, FIRST, LAST, ROPE, COS, SIN, ROPE_DIM = numbered(10)
PLACE = 10

# How many matrices lie behind one another.
_QKV, _ONE = np.int64(3), np.int64(1)
_START, _NO_BIAS = np.int64(0), np.int64(0)

# Threads wait by looking; after so many looks they let others run, if the machine is busy.
_LOOKS = 2000
# In the barrier array: the count of arrivals, and whether somebody gave up.
ARRIVED, ABANDONED = np.int64(0), np.int64(8)


@inlined
def _meet(barrier, team, round_):
    """Wait until all have come; false where one of them will not."""
    arrived, abandoned = barrier.ctypes.data + ARRIVED * 8, barrier.ctypes.data + ABANDONED * 8
    add_atomically(arrived, 1)
    goal, looks = team * round_, 0
    while load_atomically(arrived) < goal:
        looks += 1
        if looks % _LOOKS == 0:
            if load_atomically(abandoned):
                return False
            give_way()
    return True


@inlined
def _share(total, me, team):
    """Rows start ... stop of this thread, cut at multiples of 8."""
    units = (total + 7) // 8
    return min(total, units * me // team * 8), min(total, units * (me + 1) // team * 8)


@inlined
def _matrix(table, which):
    return table[which * FIELDS : (which + 1) * FIELDS]


@inlined
def _stacked(table, which, count, x, sums, y, me, team):
    """This thread's share of the rows of `count` matrices that are laid end to end in y."""
    total = 0
    for one in range(which, which + count):
        total += _matrix(table, one)[ROWS]
    start, stop = _share(total, me, team)
    offset = 0
    for one in range(which, which + count):
        matrix = _matrix(table, one)
        rows = matrix[ROWS]
        begin, end = max(start - offset, 0), min(stop - offset, rows)
        if begin < end:
            rows_times(matrix, x, sums, y[offset : offset + rows], begin, end)
        offset += rows


@inlined
def _normed(facts, reals, table, which, x, y):
    """y = the norm whose weight stands at `which` of x, or x where there is none."""
    kind = facts[NORM] if table[which] else 0
    norm(
        kind,
        table[which],
        table[which + 1],
        reals[NORM_OFFSET],
        reals[EPS],
        x,
        y,
        _START,
        facts[HIDDEN],
    )


@inlined
def _heads_normed(facts, reals, table, which, heads, x):
    """Queries or keys x [heads * dim] normed in place."""
    dim, kind = facts[HEAD_DIM], facts[QK_NORM]
    if kind == NO_QK_NORM:
        return
    weight, bias = table[which], table[which + 1]
    eps, offset = reals[EPS], reals[NORM_OFFSET]
    if kind == WHOLE:
        norm(facts[NORM], weight, bias, offset, eps, x, x, _START, heads * dim)
        return
    if kind == EACH_HEAD:
        for head in range(heads):
            own = weight + head * dim * 4
            norm(LAYER_NORM, own, _NO_BIAS, np.float32(0), eps, x, x, head * dim, (head + 1) * dim)
        return
    for head in range(heads):
        norm(facts[NORM], weight, bias, offset, eps, x, x, head * dim, (head + 1) * dim)


@inlined
def _queries(facts, reals, table, place, qkv, q):
    """All queries, normed and turned."""
    heads, dim = facts[HEADS], facts[HEAD_DIM]
    for i in range(heads * dim):
        q[i] = qkv[i]
    _heads_normed(facts, reals, table, Q_NORM, heads, q)
    if place[ROPE]:
        cos, sin = floats(place[COS], place[ROPE_DIM]), floats(place[SIN], place[ROPE_DIM])
        for head in range(heads):
            rotate(place[ROPE], cos, sin, place[ROPE_DIM], q, head * dim)


@inlined
def _remember(facts, reals, table, place, qkv, keys):
    """The new token's key, normed and turned, and its value go into the cache."""
    heads, dim = facts[KV_HEADS], facts[HEAD_DIM]
    begin = facts[HEADS] * dim
    for i in range(heads * dim):
        keys[i] = qkv[begin + i]
    _heads_normed(facts, reals, table, K_NORM, heads, keys)
    if place[ROPE]:
        cos, sin = floats(place[COS], place[ROPE_DIM]), floats(place[SIN], place[ROPE_DIM])
        for head in range(heads):
            rotate(place[ROPE], cos, sin, place[ROPE_DIM], keys, head * dim)
    begin += heads * dim
    for head in range(heads):
        at = (head * place[HEAD_STRIDE] + place[SLOT] * dim) * 4
        key, value = floats(place[KEYS] + at, dim), floats(place[VALUES] + at, dim)
        for i in range(dim):
            key[i] = keys[head * dim + i]
            value[i] = qkv[begin + head * dim + i]


@inlined
def _attention(facts, reals, table, place, qkv, q, scores, out, peaks, sums, me, team):
    """This thread's share of the keys, for all heads."""
    dim, kv_heads = facts[HEAD_DIM], facts[KV_HEADS]
    group = facts[HEADS] // kv_heads
    first, last, slot = place[FIRST], place[LAST], place[SLOT]
    start, stop = first + (last - first) * me // team, first + (last - first) * (me + 1) // team
    if start <= slot < stop:
        _remember(facts, reals, table, place, qkv, q)
    _queries(facts, reals, table, place, qkv, q)
    for head in range(facts[HEADS]):
        sums[head] = 0
    if start == stop:
        return
    for head in range(kv_heads):
        at = head * place[HEAD_STRIDE] * 4
        keys, values = floats(place[KEYS] + at, stop * dim), floats(place[VALUES] + at, stop * dim)
        own = slice(head * group, (head + 1) * group)
        wide = slice(head * group * dim, (head + 1) * group * dim)
        attend(
            q[wide],
            keys,
            values,
            start,
            stop,
            group,
            dim,
            reals[ATTN_SCALE],
            reals[SOFTCAP],
            scores,
            out[wide],
            peaks[own],
            sums[own],
        )


@kept
def step(me, team, barrier, facts, reals, tables, places, stream, shared, own):
    """Run the layers on the stream [C], in place. Returns 0, or 1 where somebody gave up.

    `shared` is (qkv, part [C], inner, outs [team, H*D], peaks, sums [team, H]); `own` is (x,
    normed, q, scores, sums), each with a row for every thread.
    """
    qkv, part, inner, outs, peaks, weights = shared
    x, normed, q, scores, sums = own[0][me], own[1][me], own[2][me], own[3][me], own[4][me]
    hidden, heads, dim = facts[HIDDEN], facts[HEADS], facts[HEAD_DIM]
    after_sum, both = facts[RESIDUAL] == NORM_AFTER_SUM, facts[RESIDUAL] == SIDE_BY_SIDE
    scale, round_ = reals[RESIDUAL_SCALE], 0
    width = facts[INNER]
    no_gate = inner[1, :0]
    for i in range(hidden):
        x[i] = stream[i]
    for layer in range(facts[LAYERS]):
        table, place = tables[layer], places[layer]
        if after_sum:
            for i in range(hidden):
                normed[i] = x[i]
        else:
            _normed(facts, reals, table, ATTN_NORM, x, normed)
        _stacked(table, Q, _QKV, normed, sums, qkv, me, team)
        round_ += 1
        if not _meet(barrier, team, round_):
            return 1

        _attention(
            facts, reals, table, place, qkv, q, scores, outs[me], peaks[me], weights[me], me, team
        )
        round_ += 1
        if not _meet(barrier, team, round_):
            return 1

        merge(outs, peaks, weights, team, heads, dim, q)
        _stacked(table, OUT, _ONE, q, sums, part, me, team)
        round_ += 1
        if not _meet(barrier, team, round_):
            return 1

        if both:
            # The MLP reads the same stream, so attention's part is added only behind it.
            _normed(facts, reals, table, MLP_NORM, x, normed)
            for i in range(hidden):
                x[i] += part[i]
        elif after_sum:
            for i in range(hidden):
                x[i] += part[i]
            _normed(facts, reals, table, ATTN_NORM, x, x)
            for i in range(hidden):
                normed[i] = x[i]
        else:
            _normed(facts, reals, table, POST_ATTN_NORM, part, normed)
            for i in range(hidden):
                x[i] += scale * normed[i]
            _normed(facts, reals, table, MLP_NORM, x, normed)
        start, stop = _share(width, me, team)
        if facts[GATED]:
            rows_times(_matrix(table, GATE), normed, sums, inner[0], start, stop)
            rows_times(_matrix(table, UP), normed, sums, inner[1], start, stop)
            activate(facts[ACTIVATION], inner[0], inner[1], inner[2], start, stop)
        else:
            rows_times(_matrix(table, UP), normed, sums, inner[0], start, stop)
            activate(facts[ACTIVATION], inner[0], no_gate, inner[2], start, stop)
        round_ += 1
        if not _meet(barrier, team, round_):
            return 1

        _stacked(table, DOWN, _ONE, inner[2], sums, part, me, team)
        round_ += 1
        if not _meet(barrier, team, round_):
            return 1

        if both:
            for i in range(hidden):
                x[i] += part[i]
        elif after_sum:
            for i in range(hidden):
                x[i] += part[i]
            _normed(facts, reals, table, MLP_NORM, x, x)
        else:
            _normed(facts, reals, table, POST_MLP_NORM, part, normed)
            for i in range(hidden):
                x[i] += scale * normed[i]
    if me == 0:
        for i in range(hidden):
            stream[i] = x[i]
    return 0


@kept
def product(me, team, matrix, x, scratch, y):
    """This thread's share of y [n, rows] = x [n, columns] W^T + b."""
    start, stop = _share(matrix[ROWS], me, team)
    if x.shape[0] == 1:
        rows_times(matrix, x[0], scratch[me], y[0], start, stop)
    else:
        rows_times_each(matrix, x, scratch[me], y, start, stop)
    return 0
