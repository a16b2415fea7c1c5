"""One decode step through all layers for one token, run by a few threads side by side.

Each thread owns a share of the rows of every matrix and a share of the cached keys. Norms and
sums over the stream are done by every thread for itself, as waiting would cost more. Threads
meet five times a layer:

  norm | q, k, v rows | attention over a share of the keys | merge, output rows |
  norm | inner rows   | down rows | back to the stream
"""

import numpy as np

from llmcli.kernels import layout
from llmcli.kernels.sources.dots import rows_times
from llmcli.kernels.sources.layer import (
    activated,
    attend_head,
    before_attention,
    before_mlp,
    behind_mlp,
    matrix_of,
    queries,
    remember,
    row_of,
    stacked_rows,
)
from llmcli.kernels.sources.meeting import meet, share
from llmcli.kernels.sources.parts import merge
from llmcli.kernels.sources.words import floats, inlined, ints

# How many matrices lie behind one another.
_QKV, _ONE = np.int64(3), np.int64(1)
_FIRST = np.int64(0)


@inlined
def _stacked(table, which, count, x, sums, y, me, team):
    """This thread's share of the rows of `count` matrices that are laid end to end in y."""
    start, stop = share(stacked_rows(table, which, count), me, team)
    offset = 0
    for one in range(which, which + count):
        matrix = matrix_of(table, one)
        rows = matrix[layout.ROWS]
        begin, end = max(start - offset, 0), min(stop - offset, rows)
        if begin < end:
            rows_times(matrix, x, sums, y[offset : offset + rows], begin, end)
        offset += rows


@inlined
def _attention(facts, reals, table, place, qkv, q, scores, out, peaks, sums, me, team):
    """This thread's share of the keys, for all heads."""
    first, last, slot = place[layout.FIRST], place[layout.LAST], place[layout.SLOT]
    start, stop = first + (last - first) * me // team, first + (last - first) * (me + 1) // team
    if start <= slot < stop:
        remember(facts, reals, table, place, _FIRST, _FIRST, slot, qkv, q)
    queries(facts, reals, table, place, _FIRST, qkv, q)
    for head in range(facts[layout.HEADS]):
        sums[head] = 0
    if start == stop:
        return
    for head in range(facts[layout.KV_HEADS]):
        attend_head(facts, reals, place, _FIRST, head, start, stop, q, scores, out, peaks, sums)


@inlined
def step(me, team, job_at):
    """Run the layers on the stream [C] of a job, in place.

    Returns 0, or 1 where somebody gave up. A job's ATTENDED, PEAKS and WEIGHTS have a row for
    every thread, and so have X, NORMED, QUERIES, SCORES and SCRATCH.
    """
    job = ints(job_at, 2 * layout.JOB)
    facts = ints(job[2 * layout.SHARED_FACTS], layout.FACTS)
    reals = floats(job[2 * layout.SHARED_REALS], layout.REALS)
    barrier = job[2 * layout.BARRIER]
    hidden, heads, dim = facts[layout.HIDDEN], facts[layout.HEADS], facts[layout.HEAD_DIM]
    round_ = 0

    stream, qkv = row_of(job, layout.STREAM, 0), row_of(job, layout.QKV, 0)
    part, inner = row_of(job, layout.PART, 0), row_of(job, layout.INNER_OUT, 0)
    gate, up = row_of(job, layout.GATED_INNER, 0), row_of(job, layout.UP_INNER, 0)
    x, norms = row_of(job, layout.X, me), row_of(job, layout.NORMED, me)
    q, scores = row_of(job, layout.QUERIES, me), row_of(job, layout.SCORES, me)
    sums, out = row_of(job, layout.SCRATCH, me), row_of(job, layout.ATTENDED, me)
    peaks, weights = row_of(job, layout.PEAKS, me), row_of(job, layout.WEIGHTS, me)

    for i in range(hidden):
        x[i] = stream[i]
    for layer in range(facts[layout.LAYERS]):
        table = ints(job[2 * layout.TABLES] + layer * layout.TABLE * 8, layout.TABLE)
        place = ints(job[2 * layout.PLACES] + layer * layout.PLACE * 8, layout.PLACE)
        before_attention(facts, reals, table, x, norms)
        _stacked(table, layout.Q, _QKV, norms, sums, qkv, me, team)
        round_ += 1
        if not meet(barrier, team, round_):
            return 1

        _attention(facts, reals, table, place, qkv, q, scores, out, peaks, weights, me, team)
        round_ += 1
        if not meet(barrier, team, round_):
            return 1

        merge(
            job[2 * layout.ATTENDED],
            job[2 * layout.ATTENDED + 1],
            job[2 * layout.PEAKS],
            job[2 * layout.WEIGHTS],
            job[2 * layout.PEAKS + 1],
            team,
            heads,
            dim,
            q,
        )
        _stacked(table, layout.OUT, _ONE, q, sums, part, me, team)
        round_ += 1
        if not meet(barrier, team, round_):
            return 1

        before_mlp(facts, reals, table, part, x, norms)
        start, stop = share(facts[layout.INNER], me, team)
        if facts[layout.GATED]:
            rows_times(matrix_of(table, layout.GATE), norms, sums, gate, start, stop)
        rows_times(matrix_of(table, layout.UP), norms, sums, up, start, stop)
        activated(facts, gate, up, inner, start, stop)
        round_ += 1
        if not meet(barrier, team, round_):
            return 1

        _stacked(table, layout.DOWN, _ONE, inner, sums, part, me, team)
        round_ += 1
        if not meet(barrier, team, round_):
            return 1

        behind_mlp(facts, reals, table, part, x, norms)
    if me == 0:
        for i in range(hidden):
            stream[i] = x[i]
    return 0
