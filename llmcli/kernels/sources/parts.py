"""The parts of a layer that are not products: norms, rotation, activations, attention's softmax.

All on float32 arrays of one token. What a number of `kind` means stands in layout.py.
"""

import math

import numpy as np

from llmcli.kernels.layout import (
    GELU,
    GELU_QUICK,
    GELU_TANH,
    HALVES,
    KEYS_TOGETHER,
    LAYER_NORM,
    NO_NORM,
    PAIRS,
    SILU,
)
from llmcli.kernels.sources.exponentials import (
    SATURATED,
    exponentials,
    scaled_scores,
    times_sigmoid,
)
from llmcli.kernels.sources.tiles import mixed, times_rows
from llmcli.kernels.sources.vectors import LANES
from llmcli.kernels.sources.words import address_of, apart, exp, floats, inlined, root

_ZERO, _HALF, _ONE, _FIRST = np.float32(0), np.float32(0.5), np.float32(1), np.int64(0)
_ROOT_HALF = np.float32(1 / math.sqrt(2))
# 2 sqrt(2 / pi), and the same times the cubic term of the tanh approximation (arXiv 1606.08415).
_GELU_LINEAR = np.float32(2 * math.sqrt(2 / math.pi))
_GELU_CUBIC = np.float32(2 * math.sqrt(2 / math.pi) * 0.044715)
_SATURATED = np.float32(SATURATED)
_QUICK = np.float32(1.702)
_LOWEST = np.float32(-np.inf)


@inlined
def capped(x, cap):
    """cap * tanh(x / cap), exact near zero."""
    return cap * np.float32(math.tanh(x / cap))


@inlined
def norm(kind, weight, bias, offset, eps, x, y, start, stop):
    """y[start:stop] from x[start:stop]; weight and bias [stop - start] lie at addresses, or 0."""
    apart()
    count = stop - start
    if kind == NO_NORM:
        for i in range(start, stop):
            y[i] = x[i]
        return
    mean, squares = np.float32(0), np.float32(0)
    if kind == LAYER_NORM:
        for i in range(start, stop):
            mean += x[i]
        mean /= np.float32(count)
    for i in range(start, stop):
        centred = x[i] - mean
        squares += centred * centred
    scale = _ONE / root(squares / np.float32(count) + eps)
    gain = floats(weight, count)
    if bias:
        shift = floats(bias, count)
        for i in range(count):
            y[start + i] = (x[start + i] - mean) * scale * (gain[i] + offset) + shift[i]
    else:
        for i in range(count):
            y[start + i] = (x[start + i] - mean) * scale * (gain[i] + offset)


@inlined
def rotate(kind, cos, sin, dim, x, start):
    """Turn the first `dim` of the numbers from x[start] on, in place.

    cos and sin [dim] are those of one position, the minus sign folded into the sine.
    """
    apart()
    if kind == HALVES:
        half = dim // 2
        for i in range(half):
            low, high = x[start + i], x[start + half + i]
            x[start + i] = low * cos[i] + high * sin[i]
            x[start + half + i] = high * cos[half + i] + low * sin[half + i]
    elif kind == PAIRS:
        for i in range(0, dim, 2):
            low, high = x[start + i], x[start + i + 1]
            x[start + i] = low * cos[i] + high * sin[i]
            x[start + i + 1] = high * cos[i + 1] + low * sin[i + 1]


@inlined
def activate(kind, gate, up, y, start, stop):
    """y[start:stop] = act(gate) * up, or act(gate) alone where `up` is empty."""
    apart()
    if kind == SILU:
        _times_sigmoid(gate, y, start, stop, _ONE, _ZERO)
    elif kind == GELU_TANH:
        # (1 + tanh(z)) / 2 is sigmoid(2 z).
        _times_sigmoid(gate, y, start, stop, _GELU_LINEAR, _GELU_CUBIC)
    elif kind == GELU_QUICK:
        _times_sigmoid(gate, y, start, stop, _QUICK, _ZERO)
    elif kind == GELU:
        for i in range(start, stop):
            y[i] = _HALF * gate[i] * (_ONE + np.float32(math.erf(gate[i] * _ROOT_HALF)))
    else:
        for i in range(start, stop):
            y[i] = gate[i] if not gate[i] < 0 else _ZERO
    if up.size:
        for i in range(start, stop):
            y[i] *= up[i]


@inlined
def _times_sigmoid(x, y, start, stop, linear, cubic):
    chunks = (stop - start) // LANES
    times_sigmoid(address_of(x) + start * 4, address_of(y) + start * 4, chunks, linear, cubic)
    for i in range(start + chunks * LANES, stop):
        near = min(max(x[i], -_SATURATED), _SATURATED)
        y[i] = x[i] / (_ONE + exp(-near * (linear + cubic * near * near)))


@inlined
def weighed(scores, low, high, count, scale, cap, peak):
    """Scores low ... high become exp(score - peak), all else of `count` 0.

    `scores` is an address, with room up to a whole chunk. Returns the new peak, what the sums so
    far shrink by, and the sum of these.
    """
    apart()
    chunks = (count + LANES - 1) // LANES
    if cap > 0:
        row = floats(scores, high)
        for s in range(low, high):
            row[s] = capped(row[s] * scale, cap)
        scale = _ONE
    highest = scaled_scores(scores, low, high, chunks, scale, peak)
    sum_ = exponentials(scores, low, high, chunks, highest)
    return highest, exp(peak - highest), sum_


@inlined
def attend(q, keys, values, first, last, group, dim, scale, cap, scores, out, peaks, sums):
    """What the keys first ... last add for one key-value head and its `group` of queries.

    q [group * dim]; keys and values [S * dim]; scores is room for a row of last - first floats,
    up to a whole chunk, for each query.
    Leaves sum(exp(s - peak) v) in out [group * dim], and peak and sum(exp(s - peak)) of each query.
    """
    apart()
    count = last - first
    row = (count + LANES - 1) // LANES * LANES
    for i in range(group * row):
        scores[i] = 0
    for i in range(group * dim):
        out[i] = 0
    at_scores, start = address_of(scores), first * dim
    if dim % LANES == 0:
        at_keys, at_q = address_of(keys) + start * 4, address_of(q)
        times_rows(at_keys, dim * 4, count, at_q, dim * 4, group, at_scores, row * 4, dim // LANES)
    else:
        for head in range(group):
            for s in range(count):
                for i in range(dim):
                    scores[head * row + s] += q[head * dim + i] * keys[start + s * dim + i]
    for head in range(group):
        here = at_scores + head * row * 4
        peaks[head], _, sums[head] = weighed(here, _FIRST, count, count, scale, cap, _LOWEST)
    if dim % LANES == 0:
        at_out = address_of(out)
        # So many values at a time stay in a core's cache while their columns take turns.
        for s in range(0, count, KEYS_TOGETHER):
            some, here = min(KEYS_TOGETHER, count - s), address_of(values) + (start + s * dim) * 4
            mixed(at_scores + s * 4, row * 4, group, here, dim, some, at_out, dim * 4)
    else:
        for head in range(group):
            for s in range(count):
                weight = scores[head * row + s]
                for i in range(dim):
                    out[head * dim + i] += weight * values[start + s * dim + i]


@inlined
def merge(outs, width, peaks, sums, stride, parts, heads, dim, y):
    """The parts' results as one, into y [heads * dim].

    Addresses: outs [parts, width], peaks and sums [parts, stride].
    """
    apart()
    for head in range(heads):
        peak = _LOWEST
        for part in range(parts):
            at = part * stride * 4
            if floats(sums + at, heads)[head] != 0:
                own = floats(peaks + at, heads)[head]
                if not own <= peak:
                    peak = own
        total = np.float32(0)
        for i in range(head * dim, (head + 1) * dim):
            y[i] = 0
        for part in range(parts):
            at = part * stride * 4
            sum_ = floats(sums + at, heads)[head]
            if sum_ != 0:
                factor = exp(floats(peaks + at, heads)[head] - peak)
                total += factor * sum_
                mine = floats(outs + part * width * 4, heads * dim)
                for i in range(head * dim, (head + 1) * dim):
                    y[i] += factor * mine[i]
        for i in range(head * dim, (head + 1) * dim):
            y[i] /= total
