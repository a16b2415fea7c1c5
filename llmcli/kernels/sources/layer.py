"""What a thread does for one token of a layer, beside the products of whole matrices."""

import numpy as np

from llmcli.kernels import layout
from llmcli.kernels.sources.parts import activate, attend, norm, rotate
from llmcli.kernels.sources.words import floats, inlined

_NO_BIAS, _START, _ONE = np.int64(0), np.int64(0), np.float32(1)


@inlined
def row_of(job, field, row):
    """One row of an array that the job names."""
    width = job[2 * field + 1]
    return floats(job[2 * field] + row * width * 4, width)


@inlined
def matrix_of(table, which):
    """The numbers of one of a layer's matrices."""
    return table[which * layout.FIELDS : (which + 1) * layout.FIELDS]


@inlined
def stacked_rows(table, which, count):
    """How many rows `count` matrices have together."""
    total = 0
    for one in range(which, which + count):
        total += matrix_of(table, one)[layout.ROWS]
    return total


@inlined
def normed(facts, reals, table, which, x, y):
    """y = the norm whose weight stands at `which` of x, or x where there is none."""
    kind = facts[layout.NORM] if table[which] else layout.NO_NORM
    norm(
        kind,
        table[which],
        table[which + 1],
        reals[layout.NORM_OFFSET],
        reals[layout.EPS],
        x,
        y,
        _START,
        facts[layout.HIDDEN],
    )


@inlined
def before_attention(facts, reals, table, x, norms):
    """What attention reads of the stream x."""
    if facts[layout.RESIDUAL] == layout.NORM_AFTER_SUM:
        _copied(facts, x, norms)
    else:
        normed(facts, reals, table, layout.ATTN_NORM, x, norms)


@inlined
def before_mlp(facts, reals, table, part, x, norms):
    """Attention's part goes to the stream; what the MLP reads of it."""
    if facts[layout.RESIDUAL] == layout.SIDE_BY_SIDE:
        # The MLP reads the same stream, so attention's part is added only behind it.
        normed(facts, reals, table, layout.MLP_NORM, x, norms)
        _add_scaled(_ONE, part, x, facts)
    elif facts[layout.RESIDUAL] == layout.NORM_AFTER_SUM:
        _add_scaled(_ONE, part, x, facts)
        normed(facts, reals, table, layout.ATTN_NORM, x, x)
        _copied(facts, x, norms)
    else:
        normed(facts, reals, table, layout.POST_ATTN_NORM, part, norms)
        _add_scaled(reals[layout.RESIDUAL_SCALE], norms, x, facts)
        normed(facts, reals, table, layout.MLP_NORM, x, norms)


@inlined
def behind_mlp(facts, reals, table, part, x, norms):
    """The MLP's part goes to the stream; `norms` is room."""
    if facts[layout.RESIDUAL] == layout.SIDE_BY_SIDE:
        _add_scaled(_ONE, part, x, facts)
    elif facts[layout.RESIDUAL] == layout.NORM_AFTER_SUM:
        _add_scaled(_ONE, part, x, facts)
        normed(facts, reals, table, layout.MLP_NORM, x, x)
    else:
        normed(facts, reals, table, layout.POST_MLP_NORM, part, norms)
        _add_scaled(reals[layout.RESIDUAL_SCALE], norms, x, facts)


@inlined
def activated(facts, gate, up, out, start, stop):
    """out[start:stop] of the MLP's inner rows."""
    if facts[layout.GATED]:
        activate(facts[layout.ACTIVATION], gate, up, out, start, stop)
    else:
        activate(facts[layout.ACTIVATION], up, up[:0], out, start, stop)


@inlined
def _add_scaled(scale, part, x, facts):
    for i in range(facts[layout.HIDDEN]):
        x[i] += scale * part[i]


@inlined
def _copied(facts, x, y):
    for i in range(facts[layout.HIDDEN]):
        y[i] = x[i]


@inlined
def _heads_normed(facts, reals, table, which, heads, x):
    """Queries or keys x [heads * dim] normed in place."""
    dim, kind = facts[layout.HEAD_DIM], facts[layout.QK_NORM]
    if kind == layout.NO_QK_NORM:
        return
    weight, bias = table[which], table[which + 1]
    eps, offset = reals[layout.EPS], reals[layout.NORM_OFFSET]
    if kind == layout.WHOLE:
        norm(facts[layout.NORM], weight, bias, offset, eps, x, x, _START, heads * dim)
        return
    for head in range(heads):
        start, stop = head * dim, (head + 1) * dim
        if kind == layout.EACH_HEAD:
            own = weight + start * 4
            norm(layout.LAYER_NORM, own, _NO_BIAS, np.float32(0), eps, x, x, start, stop)
        else:
            norm(facts[layout.NORM], weight, bias, offset, eps, x, x, start, stop)


@inlined
def _turned(facts, place, token, heads, x):
    """Queries or keys x [heads * dim] of a token turned in place."""
    if not place[layout.ROPE]:
        return
    dim = place[layout.ROPE_DIM]
    cos = floats(place[layout.COS] + token * dim * 4, dim)
    sin = floats(place[layout.SIN] + token * dim * 4, dim)
    for head in range(heads):
        rotate(place[layout.ROPE], cos, sin, dim, x, head * facts[layout.HEAD_DIM])


@inlined
def queries(facts, reals, table, place, token, qkv, q):
    """All queries of a token, normed and turned."""
    heads = facts[layout.HEADS]
    for i in range(heads * facts[layout.HEAD_DIM]):
        q[i] = qkv[i]
    _heads_normed(facts, reals, table, layout.Q_NORM, heads, q)
    _turned(facts, place, token, heads, q)


@inlined
def remember(facts, reals, table, place, token, row, slot, qkv, room):
    """A token's key, normed and turned, and its value go into the cache."""
    heads, dim = facts[layout.KV_HEADS], facts[layout.HEAD_DIM]
    begin = facts[layout.HEADS] * dim
    for i in range(heads * dim):
        room[i] = qkv[begin + i]
    _heads_normed(facts, reals, table, layout.K_NORM, heads, room)
    _turned(facts, place, token, heads, room)
    begin += heads * dim
    for head in range(heads):
        at = row * place[layout.ROW_STRIDE] + head * place[layout.HEAD_STRIDE] + slot * dim
        key, value = (
            floats(place[layout.KEYS] + at * 4, dim),
            floats(place[layout.VALUES] + at * 4, dim),
        )
        for i in range(dim):
            key[i] = room[head * dim + i]
            value[i] = qkv[begin + head * dim + i]


@inlined
def attend_head(facts, reals, place, row, head, first, last, q, scores, out, peaks, sums):
    """attend() for one key-value head of a row of the batch; q and out [H * D], peaks [H]."""
    dim = facts[layout.HEAD_DIM]
    group = facts[layout.HEADS] // facts[layout.KV_HEADS]
    at = (row * place[layout.ROW_STRIDE] + head * place[layout.HEAD_STRIDE]) * 4
    own = slice(head * group, (head + 1) * group)
    wide = slice(head * group * dim, (head + 1) * group * dim)
    attend(
        q[wide],
        floats(place[layout.KEYS] + at, last * dim),
        floats(place[layout.VALUES] + at, last * dim),
        first,
        last,
        group,
        dim,
        reals[layout.ATTN_SCALE],
        reals[layout.SOFTCAP],
        scores,
        out[wide],
        peaks[own],
        sums[own],
    )
