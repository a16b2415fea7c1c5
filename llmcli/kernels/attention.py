"""Attention of several tokens: each by itself, or those of a row together on tiles."""

import numpy as np

from llmcli.kernels import layout
from llmcli.kernels.layer import attend_head, row_of
from llmcli.kernels.parts import weighed
from llmcli.kernels.tiles import mixed, times_panel
from llmcli.kernels.vectors import LANES
from llmcli.kernels.words import apart, floats, inlined, ints

_LOWEST = np.float32(-np.inf)


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
def attend_together(job, facts, reals, place, row, head, begin, end, me):
    """Tokens begin ... end of a row and one key-value head, some keys at a time.

    Sums so far shrink where later keys raise the peak (arXiv 2205.14135).
    """
    apart()
    each, dim = job[2 * layout.COUNT + 1], facts[layout.HEAD_DIM]
    group = facts[layout.HEADS] // facts[layout.KV_HEADS]
    at = (row * place[layout.ROW_STRIDE] + head * place[layout.HEAD_STRIDE]) * 4
    count, token = end - begin, row * each + begin
    scores_at, block = row_of(job, layout.SCORES, me).ctypes.data, layout.KEYS_TOGETHER
    q_stride, out_stride = job[2 * layout.QUERIES + 1] * 4, job[2 * layout.ATTENDED + 1] * 4
    last = place[layout.LAST] + end - 1
    for query in range(head * group, (head + 1) * group):
        q = job[2 * layout.QUERIES] + token * q_stride + query * dim * 4
        out = job[2 * layout.ATTENDED] + token * out_stride + query * dim * 4
        for one in range(count):
            row_of(job, layout.PEAKS, token + one)[query] = _LOWEST
            row_of(job, layout.WEIGHTS, token + one)[query] = 0
            mine = floats(out + one * out_stride, dim)
            for i in range(dim):
                mine[i] = 0
        first = _first_seen(job, place, row, place[layout.LAST] + begin)
        for start in range(first, last, block):
            stop = min(start + block, last)
            keys = stop - start
            for one in range(count):
                scores = floats(scores_at + one * block * 4, keys)
                for s in range(keys):
                    scores[s] = 0
            here = place[layout.KEYS] + at + start * dim * 4
            times_panel(here, dim * 4, keys, q, q_stride, count, scores_at, block * 4, dim // LANES)
            for one in range(count):
                own_last = place[layout.LAST] + begin + one
                low = max(_first_seen(job, place, row, own_last), start) - start
                high = min(own_last, stop) - start
                scores = floats(scores_at + one * block * 4, keys)
                if low >= high:
                    for s in range(keys):
                        scores[s] = 0
                    continue
                peaks = row_of(job, layout.PEAKS, token + one)
                sums = row_of(job, layout.WEIGHTS, token + one)
                peak, shrunk, total = weighed(
                    scores,
                    low,
                    high,
                    keys,
                    reals[layout.ATTN_SCALE],
                    reals[layout.SOFTCAP],
                    peaks[query],
                )
                peaks[query], sums[query] = peak, sums[query] * shrunk + total
                mine = floats(out + one * out_stride, dim)
                for i in range(dim):
                    mine[i] *= shrunk
            values = place[layout.VALUES] + at + start * dim * 4
            mixed(scores_at, block * 4, count, values, dim, keys, out, out_stride)
        for one in range(count):
            share = np.float32(1) / row_of(job, layout.WEIGHTS, token + one)[query]
            mine = floats(out + one * out_stride, dim)
            for i in range(dim):
                mine[i] *= share
