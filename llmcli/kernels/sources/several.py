"""One step through all layers for several tokens: rows of a batch, or a few tokens of one row.

Threads share the rows of every matrix, whose weights are read once for all tokens. Norms and
rotation are shared by tokens, attention by tokens and heads. Threads meet eight times a layer.
"""

import numpy as np

from llmcli.kernels import layout
from llmcli.kernels.sources.attention import attend_alone, attend_together
from llmcli.kernels.sources.layer import (
    activated,
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
from llmcli.kernels.sources.products import rows_times_each
from llmcli.kernels.sources.words import floats, inlined, ints

_QKV, _ONE = np.int64(3), np.int64(1)


@inlined
def _part(total, me, team):
    return total * me // team, total * (me + 1) // team


@inlined
def _stacked(job, table, which, count, source, target, me, team):
    """This thread's share of the rows of `count` matrices, for every token."""
    start, stop = share(stacked_rows(table, which, count), me, team)
    x, x_width = job[2 * source], job[2 * source + 1]
    y, y_width = job[2 * target], job[2 * target + 1]
    room = row_of(job, layout.SCRATCH, me)
    offset = 0
    for one in range(which, which + count):
        matrix = matrix_of(table, one)
        rows = matrix[layout.ROWS]
        begin, end = max(start - offset, 0), min(stop - offset, rows)
        if begin < end:
            rows_times_each(
                matrix,
                job[2 * layout.COUNT],
                x,
                x_width,
                room,
                y + offset * 4,
                y_width,
                begin,
                end,
                job[2 * layout.BARRIER],
            )
        offset += rows


@inlined
def _remember_each(job, facts, reals, table, place, start, stop):
    """Queries, keys and values of these tokens."""
    each = job[2 * layout.COUNT + 1]
    for token in range(start, stop):
        qkv, q = row_of(job, layout.QKV, token), row_of(job, layout.QUERIES, token)
        row, slot = token // each, place[layout.SLOT] + token % each
        remember(facts, reals, table, place, token, row, slot, qkv, q)
        queries(facts, reals, table, place, token, qkv, q)


@inlined
def _attend_each(job, facts, reals, place, me, team):
    """This thread's share of all tokens' heads: those of a row together, or each by itself."""
    count, each = job[2 * layout.COUNT], job[2 * layout.COUNT + 1]
    kv_heads, dim = facts[layout.KV_HEADS], facts[layout.HEAD_DIM]
    if each >= layout.CHUNK and dim % layout.CHUNK == 0:
        blocks = (each + layout.TOKENS_TOGETHER - 1) // layout.TOKENS_TOGETHER
        # Later blocks see more keys, so threads take turns.
        unit = me
        while unit < count // each * kv_heads * blocks:
            row, head, block = unit // blocks // kv_heads, unit // blocks % kv_heads, unit % blocks
            begin = block * layout.TOKENS_TOGETHER
            end = min(begin + layout.TOKENS_TOGETHER, each)
            attend_together(job, facts, reals, place, row, head, begin, end, me)
            unit += team
        return
    start, stop = _part(count * kv_heads, me, team)
    for unit in range(start, stop):
        attend_alone(job, facts, reals, place, unit // kv_heads, unit % kv_heads, me)


@inlined
def _inner(job, facts, table, me, team):
    """This thread's share of the MLP's inner rows, for every token."""
    start, stop = share(facts[layout.INNER], me, team)
    if start == stop:
        return
    count, room = job[2 * layout.COUNT], row_of(job, layout.SCRATCH, me)
    x, x_width = job[2 * layout.NORMED], job[2 * layout.NORMED + 1]
    for which, target in ((layout.GATE, layout.GATED_INNER), (layout.UP, layout.UP_INNER)):
        if which == layout.UP or facts[layout.GATED]:
            y, y_width = job[2 * target], job[2 * target + 1]
            rows_times_each(
                matrix_of(table, which),
                count,
                x,
                x_width,
                room,
                y,
                y_width,
                start,
                stop,
                job[2 * layout.BARRIER],
            )
    for token in range(count):
        gate, up = row_of(job, layout.GATED_INNER, token), row_of(job, layout.UP_INNER, token)
        out = row_of(job, layout.INNER_OUT, token)
        activated(facts, gate, up, out, start, stop)


@inlined
def _streams(job, facts, reals, table, stage, start, stop):
    """These tokens' streams before attention (0), between (5) or behind the MLP (8)."""
    for token in range(start, stop):
        x, norms = row_of(job, layout.STREAM, token), row_of(job, layout.NORMED, token)
        part = row_of(job, layout.PART, token)
        if stage == 0:
            before_attention(facts, reals, table, x, norms)
        elif stage == 5:
            before_mlp(facts, reals, table, part, x, norms)
        else:
            behind_mlp(facts, reals, table, part, x, norms)


@inlined
def several(me, team, job_at):
    """Run the layers on the streams [N,C] of a job, in place.

    Returns 0, or 1 where somebody gave up. SCORES and SCRATCH have a row for every thread, all
    else one for every token.
    """
    job = ints(job_at, 2 * layout.JOB)
    facts = ints(job[2 * layout.SHARED_FACTS], layout.FACTS)
    reals = floats(job[2 * layout.SHARED_REALS], layout.REALS)
    barrier, round_ = job[2 * layout.BARRIER], 0
    start, stop = _part(job[2 * layout.COUNT], me, team)
    for layer in range(facts[layout.LAYERS]):
        table = ints(job[2 * layout.TABLES] + layer * layout.TABLE * 8, layout.TABLE)
        place = ints(job[2 * layout.PLACES] + layer * layout.PLACE * 8, layout.PLACE)
        for stage in range(8):
            if stage in (0, 5):
                _streams(job, facts, reals, table, stage, start, stop)
            elif stage == 1:
                _stacked(job, table, layout.Q, _QKV, layout.NORMED, layout.QKV, me, team)
            elif stage == 2:
                _remember_each(job, facts, reals, table, place, start, stop)
            elif stage == 3:
                _attend_each(job, facts, reals, place, me, team)
            elif stage == 4:
                _stacked(job, table, layout.OUT, _ONE, layout.ATTENDED, layout.PART, me, team)
            elif stage == 6:
                _inner(job, facts, table, me, team)
            else:
                _stacked(job, table, layout.DOWN, _ONE, layout.INNER_OUT, layout.PART, me, team)
            round_ += 1
            if not meet(barrier, team, round_):
                return 1
        _streams(job, facts, reals, table, 8, start, stop)
    return 0
