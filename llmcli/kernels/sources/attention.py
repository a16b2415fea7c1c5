"""Attention of several tokens: each by itself, or those of a row together on tiles."""

import numpy as np

from llmcli.kernels import layout
from llmcli.kernels.sources.layer import attend_head, row_of
from llmcli.kernels.sources.panel import lay_float32
from llmcli.kernels.sources.parts import weighed
from llmcli.kernels.sources.tiles import mixed, times_panel
from llmcli.kernels.sources.vectors import LANES
from llmcli.kernels.sources.words import address_of, apart, floats, inlined, ints

_LOWEST = np.float32(-np.inf)
# From row to row, where all begin with one; and of what has no scales.
_SAME, _NO_SCALES = np.int64(0), np.int64(0)


@inlined
def _first_seen(job, place, row, last):
    """The first slot that a token sees whose own is the one before `last`."""
    first = place[layout.FIRST]
    if place[layout.WINDOW]:
        first = max(first, last - place[layout.WINDOW])
    if job[2 * layout.PADS]:
        first = max(first, ints(job[2 * layout.PADS], row + 1)[row])
    return first


@inlined
def attend_alone(job, facts, reals, place, token, head, me):
    """One token and one key-value head, with what its queries get written to ATTENDED."""
    apart()
    each, dim = job[2 * layout.COUNT + 1], facts[layout.HEAD_DIM]
    group = facts[layout.HEADS] // facts[layout.KV_HEADS]
    row, last = token // each, place[layout.LAST] + token % each
    out, sums = row_of(job, layout.ATTENDED, token), row_of(job, layout.WEIGHTS, token)
    attend_head(
        facts,
        reals,
        place,
        row,
        head,
        _first_seen(job, place, row, last),
        last,
        row_of(job, layout.QUERIES, token),
        row_of(job, layout.SCORES, me),
        out,
        row_of(job, layout.PEAKS, token),
        sums,
    )
    for query in range(head * group, (head + 1) * group):
        share = np.float32(1) / sums[query]
        for i in range(query * dim, (query + 1) * dim):
            out[i] *= share


@inlined
def _cleared(job, token, query, count, dim):
    """Nothing seen yet by `count` tokens for one query head."""
    for one in range(token, token + count):
        row_of(job, layout.PEAKS, one)[query] = _LOWEST
        row_of(job, layout.WEIGHTS, one)[query] = 0
        out = row_of(job, layout.ATTENDED, one)
        for i in range(query * dim, (query + 1) * dim):
            out[i] = 0


@inlined
def _scored(q, q_stride, count, panels, keys, dim, scores, nothing):
    """scores [count, KEYS_TOGETHER] = q times keys that lie in panels; `nothing` is a row of 0."""
    stride = layout.KEYS_TOGETHER * 4
    for s in range(0, keys, layout.PANEL):
        panel, out = panels + s * dim * 4, scores + s * 4
        times_panel(panel, q, q_stride, count, nothing, _SAME, out, stride, dim // LANES)


@inlined
def attend_together(job, facts, reals, place, row, head, begin, end, me):
    """Tokens begin ... end of a row and one key-value head, some keys at a time.

    Sums so far shrink where later keys raise the peak (arXiv 2205.14135).
    """
    apart()
    each, dim = job[2 * layout.COUNT + 1], facts[layout.HEAD_DIM]
    group = facts[layout.HEADS] // facts[layout.KV_HEADS]
    base = (row * place[layout.ROW_STRIDE] + head * place[layout.HEAD_STRIDE]) * 4
    count, token, stride = end - begin, row * each + begin, layout.KEYS_TOGETHER * 4
    scores_at, nothing = address_of(row_of(job, layout.SCORES, me)), row_of(job, layout.SCRATCH, me)
    for i in range(layout.PANEL):
        nothing[i] = 0
    at_nothing = address_of(nothing)
    panels = at_nothing + layout.PANEL * 4
    q_stride, out_stride = job[2 * layout.QUERIES + 1] * 4, job[2 * layout.ATTENDED + 1] * 4
    last = place[layout.LAST] + end - 1
    for query in range(head * group, (head + 1) * group):
        _cleared(job, token, query, count, dim)
    first = _first_seen(job, place, row, place[layout.LAST] + begin)
    for start in range(first, last, layout.KEYS_TOGETHER):
        stop = min(start + layout.KEYS_TOGETHER, last)
        keys, here = stop - start, base + start * dim * 4
        for s in range(0, keys, layout.PANEL):
            for one in range(s, min(s + layout.PANEL, keys), LANES):
                some, panel = min(LANES, keys - one), panels + (s * dim + one - s) * 4
                at = place[layout.KEYS] + here + one * dim * 4
                lay_float32(at, dim * 4, some, dim // LANES, _NO_SCALES, panel)
        for query in range(head * group, (head + 1) * group):
            q = job[2 * layout.QUERIES] + token * q_stride + query * dim * 4
            out = job[2 * layout.ATTENDED] + token * out_stride + query * dim * 4
            _scored(q, q_stride, count, panels, keys, dim, scores_at, at_nothing)
            for one in range(count):
                own_last = place[layout.LAST] + begin + one
                low = max(_first_seen(job, place, row, own_last), start) - start
                high = min(own_last, stop) - start
                scores = scores_at + one * stride
                if low >= high:
                    unseen = floats(scores, keys)
                    for s in range(keys):
                        unseen[s] = 0
                    continue
                peaks = row_of(job, layout.PEAKS, token + one)
                sums = row_of(job, layout.WEIGHTS, token + one)
                scale, cap = reals[layout.ATTN_SCALE], reals[layout.SOFTCAP]
                peak, shrunk, total = weighed(scores, low, high, keys, scale, cap, peaks[query])
                peaks[query], sums[query] = peak, sums[query] * shrunk + total
                mine = floats(out + one * out_stride, dim)
                for i in range(dim):
                    mine[i] *= shrunk
            mixed(scores_at, stride, count, place[layout.VALUES] + here, dim, keys, out, out_stride)
    for query in range(head * group, (head + 1) * group):
        for one in range(token, token + count):
            share = np.float32(1) / row_of(job, layout.WEIGHTS, one)[query]
            out = row_of(job, layout.ATTENDED, one)
            for i in range(query * dim, (query + 1) * dim):
                out[i] *= share
